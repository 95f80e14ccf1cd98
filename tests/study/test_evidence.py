"""A verdict cannot be had by choosing: what is less than the whole evidence shows its figure and no state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.study.store import Store

WHOLE: dict[str, Any] = {"scale": "small", "repeats": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evidence") / "s.db"


def stored(store: Path) -> dict[str, tuple[str, float | None]]:
    with Store.read(store) as opened:
        return opened.last_verdicts()


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"scale": "tiny"}, "the claim is made for scale small, and this is tiny"),
        ({"cases": ["draw-1", "draw-2"]}, "only 2 of the 6 cases that the claim is made for were run"),
        ({"settings": {"plain": {"factor": 2.0}}}, "plain was run with other parameters than its own"),
        ({"settings": {"twin": {"factor": 0.5}}}, "twin was run with other parameters than its own"),
    ],
)
def test_a_part_shows_its_figure_and_no_state(choice: dict[str, Any], reason: str, store: Path) -> None:
    result = armillary.compare("outside/draws", techniques=["plain", "twin"], store=store, **{**WHOLE, **choice})
    (verdict,) = result.verdicts
    assert (verdict.state, verdict.whole) == ("not tried", False)
    assert reason in verdict.reason
    assert verdict.figure is not None
    assert stored(store) == {}


def test_own_work_judges_nothing(tmp_path: Path, store: Path) -> None:
    (tmp_path / "mine.txt").write_text("1\n2\n3\n")
    result = armillary.compare("outside/draws", work=tmp_path / "mine.txt", techniques=["plain", "twin"], store=store, repeats=1)
    assert [v.state for v in result.verdicts] == ["not tried"]
    assert stored(store) == {}


def test_the_whole_is_judged_and_stored(tmp_path: Path) -> None:
    result = armillary.compare("outside/draws", techniques=["plain", "twin"], store=tmp_path / "s.db", **WHOLE)
    (verdict,) = result.verdicts
    assert (verdict.state, verdict.whole) == ("not held", True)
    assert stored(tmp_path / "s.db") == {"outside/draws/plain#1": ("not held", 1.0)}


def test_best_of_all_needs_all(tmp_path: Path) -> None:
    """The example of a reviewer: two techniques on the cases that please one of them were "held, 100 %"."""
    result = armillary.compare(
        "storage/eviction", scale="tiny", techniques=["lru", "fifo-mep"], cases=["zipf*"], repeats=1, store=tmp_path / "s.db"
    )
    wins = next(v for v in result.verdicts if v.unit == " %" and "best" in v.published)
    assert wins.state == "not tried"
    assert stored(tmp_path / "s.db") == {}
