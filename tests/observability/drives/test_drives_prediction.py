"""The fitted predictor: what it says of drives, why, for how long and at what price; drift; and that its files are believed only if whole."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_fleets import drawn, fleet, predictor

pytest.importorskip("torch")

from armillary.errors import InputError
from armillary.learn.calibration import Isotonic
from armillary.observability.drives import GmpPredictor, Predictor
from armillary.observability.drives.fleets.fleet import NEVER
from armillary.observability.drives.judging.alarms import Scored
from armillary.observability.drives.prediction.costs import Held, thresholds
from armillary.observability.drives.prediction.drift import _compared
from armillary.observability.drives.prediction.survival import Survival


def test_every_living_drive_gets_a_row_and_the_likeliest_come_first() -> None:
    made, one = predictor(), fleet()
    found = made.predict(one)
    gone = one.failure < one.days
    assert found.height == len(one) - gone.sum()
    risk = made.at_risk(10)
    assert risk.height == 10
    assert risk["score"].is_sorted(descending=True)
    assert risk["score"][0] == found["score"].max()
    failing = {one.name(i) for i in np.flatnonzero((one.failure >= one.days) & (one.failure < NEVER))}
    hit = sum(f"{model}/{serial}" in failing for model, serial in risk.select("model", "serial").iter_rows())
    assert hit >= 2
    spans = [f"survival_{h}_days" for h in made.survival_curves.known]
    assert "survival_7_days" in spans
    for near, far in itertools.pairwise(spans):
        assert (found[near] >= found[far]).all()
    assert np.allclose(1 - found["probability"].to_numpy(), found["survival_10_days"].to_numpy())


def test_the_last_days_give_the_same_answer_as_the_whole_log_up_to_history() -> None:
    made, one = predictor(), fleet()
    found = made.predict(one.last(40))
    assert found.filter("scored").height > 0.8 * found.height


def test_a_drive_with_three_days_is_listed_without_a_score() -> None:
    made, one = predictor(), fleet()
    found = made.predict(one.last(3))
    assert found.height > 0
    assert not found["scored"].any()
    assert found["score"].is_null().all()
    assert not found["flagged"].any()
    assert made.at_risk().height == 0
    row = found.row(0, named=True)
    with pytest.raises(InputError, match="expected at least 7"):
        made.explain(row["model"], row["serial"])
    assert made.prometheus().count("failure_probability{") == 0


def test_missing_attributes_resets_and_gaps_are_no_trouble() -> None:
    made, one = predictor(), fleet()
    rng = np.random.default_rng(0)
    few = replace(
        one, attributes=one.attributes[[1, 11]], raw=one.raw[:, [1, 11]] * rng.integers(0, 2, (one.rows, 1)), normal=one.normal[:, [1, 11]]
    )
    keep = rng.random(one.rows) < 0.4
    keep[one.start[:-1]] = True
    found = made.predict(few._rows(keep))
    assert found["score"].drop_nulls().is_finite().all()
    with pytest.raises(InputError, match="expected some of"):
        made.predict(replace(few, attributes=np.array([250, 251])))


def test_a_model_that_training_did_not_see_is_scored_by_the_pool() -> None:
    one = fleet()
    found = predictor().predict(replace(one, models=("XY9", "MB1")))
    assert found.filter(pl.col("model") == "XY9")["score"].drop_nulls().is_finite().all()
    assert predictor().importance("XY9").height > 10


def test_probabilities_of_windows() -> None:
    made, one = predictor(), fleet().last(12)
    found, named = made.predict_proba(one), made.windows(one)
    assert found.shape == (named.height, 2)
    assert np.allclose(found.sum(1), 1)
    last = made.predict(one).filter("scored").row(0, named=True)
    at = named.with_row_index().filter(
        (pl.col("model") == last["model"]) & (pl.col("serial") == last["serial"]) & (pl.col("date") == last["date"])
    )["index"][0]
    assert found[at, 1] == pytest.approx(last["probability"])


def test_an_explanation_names_what_raises_the_score() -> None:
    made, one = predictor(), fleet()
    made.predict(one)
    row = made.at_risk(1).row(0, named=True)
    told = made.explain(model=row["model"], disk=row["serial"])
    assert told["attribute"].n_unique() == told.height
    assert told["adds"].is_sorted(descending=True)
    assert told["adds"][0] > 0
    drive = one.find(row["model"], row["serial"])
    first = told.row(0, named=True)
    at = int(one.start[drive + 1]) - 1
    assert first["raw"] == one.raw[at, one.attributes.tolist().index(first["attribute"])]
    with pytest.raises(InputError, match="found no drive"):
        made.explain(row["model"], "no such")
    with pytest.raises(InputError, match="call predict"):
        Predictor.explain(replace(made, _seen=None), row["model"], row["serial"])
    with pytest.raises(InputError, match='unknown model of drive "MZ9"'):
        made.importance("MZ9")


def test_thresholds_by_money_against_every_threshold() -> None:
    rng = np.random.default_rng(3)
    n = 60
    fails = rng.random(n) < 0.3
    healthy = ~fails
    right = np.where(fails, np.round(rng.normal(1, 1, n), 1), -np.inf)
    held = Held(("A", "B", "C"), rng.integers(0, 2, n), fails, healthy, right, np.maximum(right, np.round(rng.normal(0, 1, n), 1)), 9)
    for swap, missed in ((0.0, 100.0), (10.0, 500.0), (500.0, 10.0)):
        found = thresholds(held, 1.0, 4.0, swap, missed)
        assert found["model"].to_list() == ["A", "B"]
        for number, row in enumerate(found.to_dicts()):
            of = held.model == number
            costs = [
                swap * 4.0 * (of & healthy & (held.any >= cut)).sum() + missed * (of & fails & (held.right < cut)).sum()
                + swap * (of & fails & (held.right < cut) & (held.any >= cut)).sum()
                for cut in [*np.unique(held.right), np.inf]
            ]  # fmt: skip
            assert row["cost"] == pytest.approx(min(costs))
            assert row["cost"] <= row["cost_without"]
            assert row["cost"] <= row["cost_usual"]
    assert (found["threshold"] > thresholds(held, 1.0, 4.0, 10.0, 500.0)["threshold"]).all()
    with pytest.raises(InputError, match="false_swap: found nan"):
        thresholds(held, 1.0, 4.0, float("nan"), 1.0)
    assert predictor().thresholds(200, 2000).height == 2


def test_weights_of_an_isotonic_fit_are_repeats() -> None:
    rng = np.random.default_rng(0)
    x, y, w = np.round(rng.normal(size=80), 1), rng.random(80) < 0.4, rng.integers(1, 5, 80)
    one, other = Isotonic.fit(x, y, w), Isotonic.fit(np.repeat(x, w), np.repeat(y, w))
    at = np.linspace(-3, 3, 50)
    assert one(at) == pytest.approx(other(at))


def test_money_that_is_promised_is_not_money_that_is_saved() -> None:
    """The cost of a threshold is that of the days on which it was chosen; on later days it costs more, but less than no prediction."""
    rng = np.random.default_rng(1)
    n = 4000

    def drawn_held() -> Held:
        fails = rng.random(n) < 0.1
        right = np.where(fails, rng.normal(1.5, 1, n), -np.inf)
        return Held(("A",), np.zeros(n, np.int64), fails, ~fails, right, np.maximum(right, rng.normal(0, 1, n)), 9)

    promised, delivered, without = 0.0, 0.0, 0.0
    for _ in range(5):
        chosen = thresholds(drawn_held(), 0.0, 3.0, 100, 2000).row(0, named=True)
        later = thresholds(drawn_held(), chosen["threshold"], 3.0, 100, 2000).row(0, named=True)
        promised, delivered, without = promised + chosen["cost"], delivered + later["cost_usual"], without + later["cost_without"]
    assert promised < 1.1 * delivered
    assert delivered < 0.9 * without


def test_survival_is_calibrated_on_days_that_it_did_not_see() -> None:
    one, other = drawn(31, drives=2500, failures=700), drawn(32, drives=2500, failures=700)
    curves = []
    for given in (one, other):
        rng = np.random.default_rng(len(curves))
        ahead = given.failure[given.drive] - given.day
        score = np.where((ahead > 0) & (ahead <= 10), 1.5, 0) + rng.normal(0, 1, given.rows)
        curves.append((given, Scored(given.drive, given.day, score)))
    survival = Survival.fit(*curves[0], 10)
    assert survival.known == (7, 10, 14, 30)
    given, scored = curves[1]
    fails = (given.failure[scored.drive] - scored.day > 0) & (given.failure[scored.drive] - scored.day <= 10)
    weight = np.where(given.failure[scored.drive] >= NEVER, given.weight, 1.0)
    said = 1 - survival(10, scored.score)
    for low, high in ((0.0, 0.002), (0.002, 0.02), (0.02, 1.0)):
        of = (said >= low) & (said < high)
        assert np.average(fails[of], weights=weight[of]) == pytest.approx(np.average(said[of], weights=weight[of]), rel=0.4, abs=3e-4)
    assert np.isnan(survival(10, np.array([np.nan]))).all()


def test_the_drift_alarm_keeps_quiet_on_equal_fleets_and_speaks_on_others() -> None:
    rng = np.random.default_rng(0)
    usual = rng.dirichlet([5, 3, 1, 1], 120)
    quiet = [_compared(("MC1",), (5, 187, 199), usual, rng.dirichlet([5, 3, 1, 1], 30)).refit for _ in range(100)]
    assert np.mean(quiet) < 0.08
    moved = _compared(("MC1",), (5, 187, 199), usual, rng.dirichlet([3, 5, 1, 1], 30))
    assert moved.refit
    assert str(moved).startswith("refit MC1: attribute 187 says more than in training and 5 less")
    few = _compared(("MC1",), (5, 187, 199), usual, usual[:3])
    assert not few.refit
    assert "too few to tell" in str(few)


@pytest.mark.slow
def test_drift_of_the_signs_of_failure_is_seen_by_trained_networks() -> None:
    made = GmpPredictor(horizon=30, epochs=5, ensemble=1, width=16).fit(drawn(41, drives=900, days=100, failures=300, horizon=30, models=3))
    steady = drawn(42, drives=900, days=100, failures=300, horizon=30, models=3)
    moved = drawn(43, drives=900, days=100, failures=300, horizon=30, models=3, drift_day=0)
    said = {
        name: {model: one for one in made.drift(given) for model in one.models} for name, given in (("steady", steady), ("moved", moved))
    }
    assert not any(one.refit for one in said["steady"].values())
    assert said["moved"]["MA1"].refit
    assert said["moved"]["MC1"].refit
    assert said["moved"]["MA1"].fell == 187
    assert not said["moved"]["MB1"].refit


def test_prometheus_text_is_well_formed() -> None:
    import re

    made, one = predictor(), fleet()
    made.predict(replace(one, serial=('a"b\\c\nd', *one.serial[1:])))
    text = made.prometheus()
    line = re.compile(r'armillary_drive_[a-z_]+\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*\} [-+.\deinfa]+')
    body = [row for row in text.splitlines() if not row.startswith("#")]
    assert body
    assert all(line.fullmatch(row) for row in body), [row for row in body if not line.fullmatch(row)][:2]
    assert text.endswith("\n")
    assert any('serial="a\\"b\\\\c\\nd"' in row for row in body) or one.failure[0] < one.days


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    predictor().save(tmp_path / "m.npz")
    return tmp_path / "m.npz"


def test_what_is_saved_is_loaded_and_says_the_same(stored: Path) -> None:
    again = Predictor.load(stored)
    assert again.predict(fleet()).equals(predictor().predict(fleet()))
    assert again.importance("MA1").equals(predictor().importance("MA1"))
    assert again.thresholds(1, 10).equals(predictor().thresholds(1, 10))
    assert [str(one) for one in again.drift(fleet())] == [str(one) for one in predictor().drift(fleet())]
    assert sorted(path.name for path in stored.parent.iterdir()) == ["m.json", "m.npz"]
    assert json.loads(stored.with_suffix(".json").read_text())["trained_on"]["drives"] == len(fleet())


@pytest.mark.slow
def test_loading_and_scoring_need_no_pytorch(stored: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['sklearn'] = None\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from armillary.observability.drives import Predictor\nfrom small_fleets import fleet\n"
        "made = Predictor.load(sys.argv[1])\nprint(made.predict(fleet()).filter('scored').height)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(stored), str(Path(__file__).parent)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 100


def changed(stored: Path, change: Any) -> None:
    path = stored.with_suffix(".json")
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def with_array(stored: Path, name: str, change: Any) -> None:
    with np.load(stored) as archive:
        arrays = {key: archive[key] for key in archive.files}
    arrays[name] = change(arrays[name])
    np.savez(stored, **arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.update(format="armillary-drives/9"), "format: "), (lambda f: f.update(width=16), "expected"), (lambda f: f.update(heads=3), "heads"),
        (lambda f: f.update(length=10**9), "length"), (lambda f: f["parts"][0].update(features=7), "shape"), (lambda f: f.update(extra=1), "extra"),
        (lambda f: f.update(weight=0), "weight"), (lambda f: f["spans"].pop("10"), 'expected the horizon "10"'), (lambda f: f.update(kind="pickle"), "kind"),
        (lambda f: f.update(attributes=[5]), "shape"), (lambda f: f["parts"].append(f["parts"][0]), "twice"),
        (lambda f: f.update(held=1 << 30), "more than 1,073,741,824 bytes"), (lambda f: f["spans"].update({"10": 1 << 20}), "shape"),
        (lambda f: f["parts"][0].update(members=2), "lacks the array"),
    ],
)  # fmt: skip
def test_changed_facts_are_refused(stored: Path, change: Any, message: str) -> None:
    changed(stored, change)
    with pytest.raises(InputError) as raised:
        Predictor.load(stored)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("0.columns", lambda a: a + 10_000, "expected rising numbers of features"), ("0.columns", lambda a: a[::-1].copy(), "expected rising"),
        ("0.columns", lambda a: a.astype(np.int32), "expected <i8"), ("0.spread", lambda a: 0 * a, "expected positive"),
        ("0.0.gate.weight", lambda a: a * np.nan, "not finite"), ("0.0.gate.weight", lambda a: a.T.copy(), "shape"),
        ("held.model", lambda a: a + 99, "expected numbers from 0"), ("survival.10.values", lambda a: a + 2, "expected probabilities"),
        ("nonsense", lambda a: a, "nonsense"),
    ],
)  # fmt: skip
def test_changed_arrays_are_refused(stored: Path, name: str, change: Any, message: str) -> None:
    if name == "nonsense":
        with np.load(stored) as archive:
            np.savez(stored.with_name("x.npz"), nonsense=np.zeros(3), **{key: archive[key] for key in archive.files})
        stored.with_name("x.npz").replace(stored)
    else:
        with_array(stored, name, change)
    with pytest.raises(InputError) as raised:
        Predictor.load(stored)
    assert message in str(raised.value)


def test_files_that_are_missing_cut_or_pickled_are_refused(stored: Path) -> None:
    data = stored.read_bytes()
    for wrong in (data[: len(data) // 2], b"", b"\x80\x04N."):
        stored.write_bytes(wrong)
        with pytest.raises(InputError):
            Predictor.load(stored)
    stored.unlink()
    with pytest.raises(InputError, match="no such file"):
        Predictor.load(stored)
    with pytest.raises(InputError, match=r'a name such as "drives\.npz"'):
        predictor().save(stored.with_suffix(".bin"))
    with pytest.raises(InputError, match="cannot be written"):
        predictor().save(stored.parent / "none" / "m.npz")
    np.savez(stored, x=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="Python objects"):
        Predictor.load(stored)
