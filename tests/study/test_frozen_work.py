"""No technique can change another one's input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from armillary_outside.draws import Plain, draws
from scipy import sparse

import armillary
from armillary.arena import Case
from armillary.frozen import frozen


@dataclass(frozen=True)
class Rude(Plain):
    """Sorts the work in place and adds to it."""

    def draw(self, case: Case) -> float:
        case.workload.sort()
        case.workload += 1.0
        return super().draw(case)


def test_a_technique_that_changes_its_input_fails_and_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "techniques", dict(draws.techniques))  # It joins the arena for the length of this test.
    alone = armillary.compare("outside/draws", techniques=["plain", "twin"], repeats=2, store=tmp_path / "alone.db")
    beside = armillary.compare("outside/draws", techniques=["plain", Rude(), "twin"], repeats=2, store=tmp_path / "beside.db")
    assert {unit["technique"] for unit in beside.failed} == {"rude"}
    assert all("read-only" in unit["error"] for unit in beside.failed)
    for name in ("plain", "twin"):
        assert beside.values(name, "total") == alone.values(name, "total")


@dataclass
class Held:
    inner: dict[str, object]
    many: list[object]


def test_arrays_are_found_wherever_they_hide() -> None:
    one, two, three, last = (np.zeros(3) for _ in range(4))
    matrix = sparse.csr_array(np.eye(3))
    value = (Held({"a": one, "b": [two]}, [three] + [1] * 1000 + [last]), matrix)
    assert frozen(value) is value
    for found in (one, two, three, last, matrix.data, matrix.indices, matrix.indptr):
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1


def test_a_value_that_holds_itself_ends() -> None:
    knot: list[object] = []
    knot.append(knot)
    assert frozen(knot) is knot
