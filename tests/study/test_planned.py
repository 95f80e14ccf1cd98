"""`planned` says what `compare` would run, without running it, and the store says how far a study is."""

from __future__ import annotations

from pathlib import Path

import armillary
from armillary.study.store import Store
from armillary.study.study import planned


def test_a_plan_is_the_study_that_compare_runs(tmp_path: Path) -> None:
    words = {"techniques": ["fcfs"], "scale": "tiny", "seed": 3, "repeats": 2}
    plan = planned("examples/queueing", **words)
    with Store.open(tmp_path / "s.db") as store:
        assert store.study_of(plan.identity) is None
    result = armillary.compare("examples/queueing", **words, store=tmp_path / "s.db")
    with Store.read(tmp_path / "s.db") as store:
        assert store.study_of(plan.identity) == result.study
        assert store.states_of(result.study) == {result.study: {"done": len(plan.units)}} == store.states_of()
        assert store.running(result.study) == []
        many, seconds = store.spent(result.study)
    assert (many, seconds > 0) == (len(plan.units), True)
