"""One hand-made set of values for each row and edge of the verdict rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from results_by_hand import Cells, Made

from armillary.arena import Technique
from armillary.claim import Claim, Exponent, Gain, Kind, Level, Parity, Wins
from armillary.study.result import Result
from armillary.study.verdicts import judge


def steady(*levels: float) -> dict[str, list[float]]:
    return {f"c{i}": [level] for i, level in enumerate(levels)}


def verdict(result: Result, claim: Claim) -> Any:
    return judge("by/hand/new#1", "new", claim, result, whole=True)


def test_what_was_mostly_noisy_is_held_in_part_only() -> None:
    values = {"rate": {"new": {f"c{i}": [20.0] * 5 for i in range(12)}, "old": {f"c{i}": [10.0] * 5 for i in range(12)}}}
    claim = Claim("rate", over="old", by=Gain(ratio=(1.5, None)))
    quiet, noisy = Made(values), Made(values)
    for number, unit in enumerate(unit for unit in noisy.units if unit["technique"] == "new"):
        unit["noisy"] = int(number % 5 < 3)  # type: ignore[index]
    assert verdict(quiet, claim).state == "held"
    found = verdict(noisy, claim)
    assert (found.state, found.reason) == ("held in part", "Most units ran on a disturbed machine.")


def test_what_is_simulated_does_not_mind_a_disturbed_machine() -> None:
    made = Made({"cost": {"new": {f"c{i}": [10.0] for i in range(12)}, "old": {f"c{i}": [20.0] for i in range(12)}}})
    for unit in made.units:
        unit["noisy"] = 1  # type: ignore[index]
    assert verdict(made, Claim("cost", over="old", by=Gain(ratio=(1.5, None)))).state == "held"


def test_what_is_counted_does_not_mind_a_disturbed_machine() -> None:
    made = Made({"lines": {"new": {f"c{i}": [10.0] for i in range(12)}, "old": {f"c{i}": [20.0] for i in range(12)}}})
    for unit in made.units:
        unit["noisy"] = 1  # type: ignore[index]
    assert verdict(made, Claim("lines", over="old", by=Gain(ratio=(1.5, None)))).state == "held"


def test_a_metric_that_is_measured_elsewhere_is_judged_where_it_is_simulated() -> None:
    values = {"mixed": {"new": {f"c{i}": [10.0] for i in range(12)}, "old": {f"c{i}": [20.0] for i in range(12)}}}
    kinds = {f"c{i}": {"measured"} if i < 4 else {"far"} for i in range(12)}
    found = verdict(Made(values, kinds), Claim("mixed", over="old", by=Gain(ratio=(1.5, None)), on=Kind("far")))
    assert (found.state, found.kind) == ("held", "simulated")


HALF = {"cost": {"new": steady(50, 50, 50, 50), "old": steady(100, 100, 100, 100)}}


@pytest.mark.parametrize(
    ("values", "claim", "state", "figure"),
    [
        pytest.param(HALF, Claim("cost", over="old", by=Gain(ratio=(2.0, None))), "held", 2.0, id="exactly the published ratio"),
        pytest.param(HALF, Claim("cost", over="old", by=Gain(ratio=(3.0, None))), "held in part", 2.0, id="better by less"),
        pytest.param(
            {"cost": {"new": steady(70, 70, 70, 70), "old": steady(100, 100, 100, 100)}},
            Claim("cost", over="old", by=Gain(percent=(30, 60))), "held", 30.0, id="30 to 60 percent, 30.0",
        ),
        pytest.param(HALF, Claim("cost", over="old", by=Gain(ratio=(3.0, None)), honest=(1.5, None), why="our machine"), "held", 2.0, id="honest bound"),
        pytest.param(
            HALF, Claim("cost", over="old", by=Gain(percent=(80, None)), honest=(70, None), part=60, why="x"), "not held", 50.0, id="below the part",
        ),
        pytest.param(
            {"cost": {"new": steady(50, 200, 90, 110), "old": steady(100, 100, 100, 100)}},
            Claim("cost", over="old", by=Gain(ratio=(1.0, None))), "not held", None, id="interval reaches no effect",
        ),
        pytest.param(
            {"cost": {"new": steady(104, 106, 105, 105), "old": steady(100, 100, 100, 100)}},
            Claim("cost", over="old", by=Gain(ratio=(0.9, None))), "held", None, id="almost as good, as claimed",
        ),
        pytest.param(
            {"cost": {"new": steady(100, 118, 95, 117), "old": steady(100, 100, 100, 100)}},
            Claim("cost", over="old", by=Gain(ratio=(0.9, None))), "held in part", None, id="almost as good, not on all",
        ),
        pytest.param(
            {"cost": {"new": steady(130, 131, 129, 130), "old": steady(100, 100, 100, 100)}},
            Claim("cost", over="old", by=Gain(ratio=(1.0, None)), honest=(0.9, None), part=0.8, why="x"), "not held", None, id="not almost as good",
        ),
        pytest.param(
            {"cost": {"new": steady(50, 100, 100, 100), "old": steady(100, 100, 100, 100)}},
            Claim("cost", over="old", by=Gain(ratio=(1.8, None)), aggregate="max"), "not held", 2.0, id="up to, on one lucky case",
        ),
        pytest.param(
            {"cost": {"new": steady(50, 50), "old": steady(100, 100)}},
            Claim("cost", over="old", by=Gain(ratio=(1.5, None))), "held in part", 2.0, id="few cases",
        ),
        pytest.param(
            {"rate": {"new": {"c0": [4.0, 4.1, 4.2, 4.0, 4.1]}, "old": {"c0": [2.0, 2.0, 2.1, 2.0, 2.0]}}},
            Claim("rate", over="old", by=Gain(ratio=(1.5, None))), "held in part", None, id="one case, five measured repeats",
        ),
        pytest.param(
            {"rate": {"new": {"c0": [4.0, 4.1]}, "old": {"c0": [2.0, 2.0]}}},
            Claim("rate", over="old", by=Gain(ratio=(1.5, None))), "held in part", None, id="one case, two measured repeats",
        ),
        pytest.param(
            {"accuracy": {"new": steady(0.9, 0.92, 0.91, 0.92), "old": steady(0.8, 0.82, 0.81, 0.82)}},
            Claim("accuracy", over="old", by=Gain(difference=(0.05, None))), "held", pytest.approx(0.1), id="difference",
        ),
        pytest.param(
            {"accuracy": {"new": steady(0.9, 0.92, 0.91, 0.92)}}, Claim("accuracy", by=Level(at_least=0.89)), "held", pytest.approx(0.9125), id="level",
        ),
        pytest.param(
            {"accuracy": {"new": steady(0.7, 0.99, 0.99, 0.99)}}, Claim("accuracy", by=Level(at_least=0.85)), "held in part", None, id="level by the figure",
        ),
        pytest.param({"accuracy": {"new": steady(0.5, 0.6, 0.5, 0.6)}}, Claim("accuracy", by=Level(at_least=0.85)), "not held", None, id="level missed"),
        pytest.param({"cost": {"new": steady(3, 4, 5, 4)}}, Claim("cost", by=Level(at_most=6)), "held", pytest.approx(4), id="level at most"),
        pytest.param(
            {"accuracy": {"new": steady(0.5, 0.6, 0.5, 0.6)}}, Claim("accuracy", by=Level(at_least=0.9), honest=(0.7, 1), part=0.4, why="x"),
            "held in part", None, id="level in part",
        ),
        pytest.param(
            {"cost": {"new": steady(100, 101, 99, 101), "old": steady(100, 100, 100, 100)}}, Claim("cost", over="old", by=Parity(0.1)), "held", None, id="parity",
        ),
        pytest.param(
            {"cost": {"new": steady(100, 150, 70, 95), "old": steady(100, 100, 100, 100)}}, Claim("cost", over="old", by=Parity(0.1)), "held in part", None,
            id="parity of the figure only",
        ),
        pytest.param(
            {"cost": {"new": steady(150, 150, 150, 150), "old": steady(100, 100, 100, 100)}}, Claim("cost", over="old", by=Parity(0.1)), "not held", None,
            id="no parity",
        ),
        pytest.param(
            {"cost": {"new": steady(50, 50, 50, 50), "old": steady(100, 60, 100, 60), "mid": steady(80, 80, 80, 80)}},
            Claim("cost", over=("old", "mid"), by=Gain(ratio=(1.1, None))), "held", pytest.approx((1.6 * 1.2 * 1.6 * 1.2) ** (1 / 4)), id="best of two",
        ),
        pytest.param(
            {"cost": {"new": steady(1, 1, 1, 9), "old": steady(2, 2, 2, 2), "seer": steady(0.1, 0.1, 0.1, 0.1)}},
            Claim("cost", by=Wins(0.7)), "held", pytest.approx(75.0), id="wins, oracles aside",
        ),
        pytest.param(
            {"cost": {"new": steady(1, 9, 9, 9), "old": steady(2, 2, 2, 2)}}, Claim("cost", by=Wins(0.7), honest=(0.5, None), part=0.2, why="x"),
            "held in part", pytest.approx(25.0), id="wins in part",
        ),
        pytest.param(
            {"cost": {"new": steady(1.005, 1, 1.005, 1), "old": steady(1, 1, 1, 1)}}, Claim("cost", by=Wins(0.9)), "not held", pytest.approx(50.0),
            id="a near tie is no win, an equal value is",
        ),
    ],
)  # fmt: skip
def test_state_and_figure(values: Mapping[str, Cells], claim: Claim, state: str, figure: float | None) -> None:
    found = verdict(Made(values), claim)
    assert found.state == state, found
    if figure is not None:
        assert found.figure == pytest.approx(figure) if isinstance(figure, float) else found.figure == figure


def test_exponents_come_from_the_slope() -> None:
    sizes = {f"c{i}": float(2**i) for i in range(1, 8)}
    root = {"cost": {"new": {c: [3 * n**0.5] for c, n in sizes.items()}}}
    found = verdict(Made(root, numbers=sizes), Claim("cost", by=Exponent("n", at_most=0.75)))
    assert (found.state, found.figure) == ("held", pytest.approx(0.5))
    assert verdict(Made(root, numbers=sizes), Claim("cost", by=Exponent("n", at_least=0.75))).state == "not held"
    noisy = {"cost": {"new": {c: [3 * n**0.7 * (2 if i % 2 else 0.5)] for i, (c, n) in enumerate(sizes.items())}}}
    assert verdict(Made(noisy, numbers=sizes), Claim("cost", by=Exponent("n", at_most=0.75))).state == "held in part"


KINDS = {f"c{i}": {"a"} if i < 4 else {"b"} for i in range(8)}
BOTH = (Kind("a"), Kind("b"))


@pytest.mark.parametrize(
    ("levels", "state"),
    [((50, 40), "held"), ((50, 100), "held in part"), ((50, 150), "not held"), ((50, 70), "held in part"), ((100, 100), "not held")],
)
def test_several_kinds_of_case(levels: tuple[float, float], state: str) -> None:
    values = {"cost": {"new": steady(*[levels[0]] * 4, *[levels[1]] * 4), "old": steady(*[100.0] * 8)}}
    found = verdict(Made(values, KINDS), Claim("cost", over="old", by=Gain(ratio=(2.0, None)), on=BOTH))
    assert found.state == state
    assert found.by_kind == {"a": pytest.approx(100 / levels[0]), "b": pytest.approx(100 / levels[1])}


@pytest.mark.parametrize(("by", "worst"), [(Level(at_most=6), 9.0), (Level(at_least=4), 3.0)])
def test_a_level_over_several_kinds_is_judged_on_the_worst(by: Level, worst: float) -> None:
    values = {"cost": {"new": steady(3, 3, 3, 3, 9, 9, 9, 9)}}
    found = verdict(Made(values, KINDS), Claim("cost", by=by, on=BOTH))
    assert (found.state, found.figure) == ("not held", worst)
    assert "(a 3, b 9)" in found.reason


def test_a_figure_above_the_published_range_is_held_and_said_to_lie_beyond() -> None:
    for claim in (
        Claim("cost", over="old", by=Gain(ratio=(1.2, 1.5))),
        Claim("cost", over="old", by=Gain(percent=(20, 40))),
        Claim("cost", over="old", by=Gain(ratio=(1.5, None)), honest=(1.2, 1.8), why="x"),
    ):
        found = verdict(Made(HALF), claim)
        assert (found.state, found.beyond, found.state_in_words) == ("held", True, "held, beyond the published range")
    assert not verdict(Made(HALF), Claim("cost", over="old", by=Gain(ratio=(1.5, 2.0)))).beyond


def test_reasons_say_what_happened() -> None:
    worse = {"cost": {"new": steady(104, 105, 106, 105), "old": steady(100, 100, 100, 100)}}
    assert "worse" in verdict(Made(worse), Claim("cost", over="old", by=Gain(ratio=(1.1, None)))).reason
    level = {"accuracy": {"new": steady(0.12, 0.15, 0.11, 0.13)}}
    claim = Claim("accuracy", by=Level(at_most=0.158), honest=(None, 0.13), why="our graphs are smaller")
    found = verdict(Made(level), claim)
    assert found.reason == "The figure meets the level of 0.13, but its interval reaches 0.162."
    assert (found.published, found.honest) == ("≤ 0.158", "Counts as held up to 0.13: our graphs are smaller")


@pytest.mark.parametrize(
    ("result", "claim", "reason"),
    [
        (Made(HALF), Claim("cost", over="other", by=Gain(ratio=(1.1, None))), "other was not run"),
        (Made(HALF), Claim("cost", over="old", on=Kind("cdn")), "no case of kind cdn was run"),
        (Made(HALF), Claim("cost", over="old", circular="calibrates the model"), "is an input of the model: calibrates the model"),
        (Made(HALF), Claim("cost", over="old", needs="a GPU"), "needs a GPU"),
        (Made(HALF, states={("old", "c1"): "failed"}), Claim("cost", over="old"), "old on c1 failed"),
        (Made(HALF, states={("new", "c1"): "declined"}), Claim("cost", over="old"), "new on c1 declined"),
        (Made(HALF, stale={"old"}), Claim("cost", over="old"), "stale"),
        (Made({"mixed": HALF["cost"]}, {"c0": {"measured"}}), Claim("mixed", over="old"), "different kinds: measured, simulated"),
        (Made({"cost": {"new": steady(0, 0, 0), "old": steady(1, 1, 1)}}), Claim("cost", over="old"), "3 undefined"),
        (Made(HALF), Claim("cost", over="old", by=Gain(difference=(1.0, None))), "scale."),
    ],
)  # fmt: skip
def test_not_tried_says_why(result: Result, claim: Claim, reason: str) -> None:
    found = verdict(result, claim)
    assert found.state == "not tried"
    assert reason in found.reason


def test_a_stand_in_is_named() -> None:
    found = verdict(Made(HALF), Claim("cost", over="old", by=Gain(ratio=(2.0, None)), stand_in="controller"))
    assert found.state_in_words == "held, with a stand-in (controller)"


class Claiming(Technique):
    """Says that it is at least 0.8. 2024."""

    claims = (Claim("accuracy", by=Level(at_least=0.8), says="0.8 on average"),)


def test_explain_says_which_case_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"accuracy": {"new": steady(0.81, 0.83, 0.82, 0.81, 0.1)}}
    by_hand = Made(values)
    arena = by_hand.arena
    arena.technique = lambda name: Claiming  # type: ignore[method-assign,assignment,return-value]
    monkeypatch.setattr(Made, "arena", arena)
    monkeypatch.setattr(Result, "arena", arena)
    assert [v.state for v in by_hand.verdicts] == ["not held"]
    assert "by/hand/new#1: not held (0.674 (" in by_hand.explain("c4")
    assert "without c4 it becomes held (0.818" in by_hand.explain("c4")
    assert "without c0 it stays not held" in by_hand.explain("c0")
    assert len(by_hand.influence()) == 1


def test_claims_are_checked_when_they_are_made() -> None:
    for wrong in (
        lambda: Gain(ratio=(1, 2), percent=(1, 2)),
        lambda: Gain(),
        lambda: Level(),
        lambda: Level(at_least=1, at_most=2),
        lambda: Claim("cost", by=Gain(ratio=(2, None))),
        lambda: Claim("cost", over="old", by=Level(at_least=1)),
        lambda: Claim("cost", over="old", by=Gain(ratio=(2, None)), honest=(1.5, None)),
        lambda: Claim("cost", over="old", by=Parity(), part=1, why="x"),
    ):
        with pytest.raises(TypeError):
            wrong()
