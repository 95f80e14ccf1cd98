"""Which technique is found to change most: hand-made values with known answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from armillary.advice.advice import Advice, Answered, gain, spread
from armillary.advice.finding import Table, findings
from armillary.advice.questions import BUILT_IN, FILE, MACHINE, NotAsked
from armillary.arena import Arena, Metric

CASES = ["a", "b", "c", "d", "e"]
ARENA = Arena(
    "field/arena",
    question="Which is best?",
    metrics=[Metric("wait_s", better="lower"), Metric("bytes", better="lower"), Metric("accuracy", better="higher", scale="difference")],
    techniques={name: f".{name}:X" for name in ("old", "new", "picky", "other")},
    baseline="old",
)


def table(**waits: dict[str, float] | list[float]) -> Table:
    """Waits by technique; a list gives one per case, a dictionary only some cases."""
    values = {t: {"wait_s": {c: {0: v} for c, v in (w if isinstance(w, dict) else dict(zip(CASES, w))).items()}} for t, w in waits.items()}
    return Table(ARENA, values, {(t, "wait_s"): frozenset({"simulated"}) for t in waits}, CASES)


def test_the_best_technique_over_all_cases_is_found_with_its_gain():
    (found,) = findings(table(old=[2, 4, 6, 8, 10], new=[1, 2, 3, 4, 5], other=[2, 4, 6, 8, 11]), "old")
    assert (found.technique, found.gain, found.low, found.high, found.worse_on, found.rivals, found.sure) == ("new", 2, 2, 2, 0, 2, True)
    assert found.helps
    assert gain(found) == "2 times"
    assert spread(found) == "–"


def test_a_technique_that_chooses_its_cases_is_named_and_never_ranked():
    cheat = {"a": 0.001, "b": 0.001, "c": 0.001, "d": 0.001}
    (found,) = findings(table(old=[1] * 5, new=[0.9] * 5, picky=cheat), "old")
    assert found.technique == "new"
    assert found.partial == {"picky": 4}
    assert findings(table(old=[1] * 5, picky=cheat), "old") == []


def test_one_splendid_case_does_not_make_a_gain_sure():
    (found,) = findings(table(old=[1] * 5, new=[0.001, 1.2, 1.2, 1.2, 1.2]), "old")
    assert found.gain > 3
    assert not found.sure
    assert found.worse_on == 4


def test_the_best_of_many_needs_a_wider_interval_than_one_alone():
    waits = [0.90, 0.99, 0.97, 0.92, 0.96]
    (alone,) = findings(table(old=[1] * 5, new=waits), "old")
    many = {f"rival{i}": [1.5] * 5 for i in range(40)}
    (chosen,) = findings(replace(table(old=[1] * 5, new=waits, **many)), "old")
    assert alone.technique == chosen.technique == "new"
    assert alone.gain == chosen.gain
    assert chosen.low < alone.low
    assert alone.sure
    assert not chosen.sure


def test_fewer_than_four_cases_settle_nothing():
    few = replace(table(old=[1] * 3, new=[0.5] * 3), cases=CASES[:3])
    (found,) = findings(few, "old")
    assert found.gain == 2
    assert not found.sure


def test_values_of_another_kind_are_not_compared():
    measured = table(old=[1] * 5, new=[0.5] * 5)
    kinds = {("old", "wait_s"): frozenset({"simulated"}), ("new", "wait_s"): frozenset({"measured"})}
    assert findings(replace(measured, kinds=kinds), "old") == []


def test_what_a_gain_costs_is_told():
    both = table(old=[2] * 5, new=[1] * 5)
    values = {t: dict(m) for t, m in both.values.items()}
    values["old"] |= {"bytes": {c: {0: 100.0} for c in CASES}, "accuracy": {c: {0: 0.9} for c in CASES}}
    values["new"] |= {"bytes": {c: {0: 300.0} for c in CASES}, "accuracy": {c: {0: 0.7} for c in CASES}}
    kinds = {(t, m): frozenset({"simulated"}) for t in values for m in ARENA.metrics}
    (found,) = findings(Table(ARENA, values, kinds, CASES), "old")
    assert found.costs == ("bytes is 3 times worse", "accuracy is worse by 0.2")


def test_techniques_that_gain_as_much_are_named():
    (found,) = findings(table(old=[2] * 5, new=[1] * 5, other=[1.001] * 5), "old")
    assert found.as_good == ("other",)


def test_a_case_is_led_by_the_first_metric_that_todays_technique_answers_there():
    by_accuracy = {"accuracy": {"e": {0: 0.5}}}
    values = {"old": {"wait_s": {c: {0: 1.0} for c in CASES[:4]}, **by_accuracy}}
    values["new"] = {"wait_s": {c: {0: 0.5} for c in CASES[:4]}, "accuracy": {"e": {0: 0.8}}}
    kinds = {(t, m): frozenset({"simulated"}) for t in values for m in ARENA.metrics}
    waits, accuracy = findings(Table(ARENA, values, kinds, CASES), "old")
    assert (waits.metric, waits.cases, waits.ratio) == ("wait_s", 4, True)
    assert (accuracy.metric, accuracy.cases, accuracy.ratio) == ("accuracy", 1, False)
    assert accuracy.gain == pytest.approx(0.3)


def answered(near: str, **facts: object) -> Answered:
    (found,) = findings(table(old=[2] * 5, new=[1] * 5), "old")
    return Answered(replace(found, **facts), near, "run now", "Import it.", "simulated")  # type: ignore[arg-type]


def test_sure_gains_come_first_then_the_nearest_work_then_the_low_end():
    far, near = answered(BUILT_IN, low=5.0), answered(MACHINE, low=1.5)
    nearer, unsure = answered(FILE, sure=False, gain=1.2), answered(MACHINE, sure=False)
    nothing = answered(MACHINE, gain=0.9, sure=False)
    advice = Advice("dgx", (), 0, 300, (far, near, nearer, unsure, nothing), (NotAsked("x/y", "no"),))
    assert advice.changes == [near, far, nearer]
    assert advice.unsure == [unsure]
    assert advice.stays == [nothing]
    assert "1 more gain is not sure" in advice.answer()
    assert [row["technique"] for row in advice.table().to_dicts()] == ["new"] * 5


def test_a_page_escapes_what_names_say(tmp_path):
    evil = "<script>alert(1)</script>"
    found = answered(FILE, technique=evil, costs=(evil,))
    advice = Advice(evil, (evil,), 0, 300, (found,), (NotAsked(evil, evil),))
    text = advice.write(tmp_path / "advice.html").read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert advice.write(tmp_path / "advice.json").stat().st_size > 100
    assert advice.write(tmp_path / "advice.csv").read_text().count("\n") == 2
