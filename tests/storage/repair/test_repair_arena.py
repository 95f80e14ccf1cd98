"""The arena at its smallest scale: the meaning of its metrics, and its cases."""

from __future__ import annotations

import pytest

from armillary.arena import NotForThisCase
from armillary.storage.repair.arena import repair

CASES = {case.name: case for case in repair.built_in("tiny")}


@pytest.mark.parametrize("name", ["double/14-10/drifting/1", "node/14-10/uniform/5"])
@pytest.mark.parametrize("technique", list(repair.techniques))
def test_what_a_plan_sends_adds_up(name: str, technique: str) -> None:
    case = CASES[name].at(0, 0)
    found = repair.execute(repair.make(technique), case)
    if isinstance(found, NotForThisCase):
        assert technique == "repairboost"
        assert "few" in case.kinds
        return
    values = found.values
    assert values["correct"] == 1.0
    k = case.parameters["k"]
    assert values["network_bytes"] >= k * (1 - 1e-9)
    assert 0 < values["up_utilisation"] <= 1 + 1e-9
    assert 0 < values["down_utilisation"] <= 1 + 1e-9
    if technique in ("conventional", "ppr", "rp", "pivot", "fullrepair", "repairboost"):
        assert values["network_bytes"] == pytest.approx(k)


def test_switches_keep_traffic_inside_racks() -> None:
    case = CASES["node/14-10/uniform/5"].at(0, 0)
    ran, star = (repair.execute(repair.make(t), case).values for t in ("ran", "conventional"))  # type: ignore[union-attr]
    assert ran["cross_rack_bytes"] <= 4 < star["cross_rack_bytes"]
    assert ran["repair_throughput"] > star["repair_throughput"]


def test_cases_cover_what_the_arena_promises() -> None:
    kinds = set().union(*(case.kinds for case in repair.built_in("small")))
    assert {"6-4", "9-6", "14-10", "16-12", "uniform", "down-scarce", "hotspot", "drifting", "oversubscribed"} <= kinds
    assert {"degraded-read", "double", "node", "two-nodes"} <= kinds


def test_wrong_bytes_count_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.storage.repair.simulation import carrying_out

    monkeypatch.setattr(carrying_out, "rebuild", lambda *_: (False, 0.1))
    case = repair.built_in("tiny")[0]
    found = repair.execute(repair.make("ran"), case)
    values = found.values  # type: ignore[union-attr]
    assert (values["correct"], values["repair_throughput"], values["repair_s"]) == (0.0, 0.0, float("inf"))
    assert set(values) == set(repair.metrics)
