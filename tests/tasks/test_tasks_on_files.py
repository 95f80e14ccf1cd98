"""A graph with real files: bytes, order, copies and times; and the kinds of tasks in workflow files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armillary.errors import InputError
from armillary.tasks import Graph, run_on_files
from armillary.tasks.formats import from_wfformat


def workflow() -> Graph:
    g = Graph("w")
    first, middle, last = (g.data(name, nbytes=size) for name, size in (("../first", 3_000_000), ("middle", 500), ("last", 0)))
    g.add(None, name="a", key="a", reads=[first], writes=[middle], cost=0.01)
    g.add(None, name="b", key="b", reads=[middle, first], writes=[last], cost=0.0)
    return g


def test_tasks_read_compute_and_write_in_their_directories(tmp_path: Path) -> None:
    fast, slow, home = (tmp_path / name for name in ("fast", "slow", "home"))
    for folder in (fast, slow, home):
        folder.mkdir()
    found = run_on_files(workflow(), lambda task: fast if task.name == "a" else slow, home, bytes_scale=0.5)
    a, b = sorted(found.rows(named=True), key=lambda row: row["key"])
    assert a["end"] <= b["start"], "b reads what a wrote"
    for row in (a, b):
        assert row["end"] - row["start"] == pytest.approx(row["read"] + row["compute"] + row["write"])
    assert a["compute"] > b["compute"]
    sizes = {str(path.relative_to(tmp_path)): path.stat().st_size for path in tmp_path.rglob("*.dat")}
    assert sizes == {"home/0.dat": 1_500_000, "fast/0.dat": 1_500_000, "slow/0.dat": 1_500_000, "fast/1.dat": 250, "slow/1.dat": 250,
                     "slow/2.dat": 0, "home/2.dat": 0}  # fmt: skip
    assert set((slow / "1.dat").read_bytes()) == {1}, "the copy has the bytes of the file"


def test_too_many_bytes_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="6,000,500 bytes"):
        run_on_files(workflow(), lambda task: tmp_path, tmp_path / "home", most_bytes=6_000_499)
    with pytest.raises(InputError, match="bytes_scale"):
        run_on_files(workflow(), lambda task: tmp_path, tmp_path, bytes_scale=float("nan"))
    assert not list(tmp_path.rglob("*"))


def test_one_directory_needs_no_copies(tmp_path: Path) -> None:
    found = run_on_files(workflow(), lambda task: tmp_path, tmp_path, workers=1, seconds_scale=0.0, sync=False)
    assert found["key"].to_list() == ["a", "b"]
    assert len(list(tmp_path.iterdir())) == 3


def document(task: dict[str, Any], execution: dict[str, Any]) -> dict[str, Any]:
    specified = {"name": "x_ID1", "id": "x", "parents": [], "children": [], "inputFiles": [], "outputFiles": [], **task}
    ran = {"id": "x", "runtimeInSeconds": 1, **execution}
    return {"schemaVersion": "1.5", "workflow": {"specification": {"tasks": [specified], "files": []}, "execution": {"tasks": [ran]}}}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (document({}, {"command": {"program": "mProject", "arguments": []}}), "mProject"),
        (document({}, {"command": {"arguments": []}}), ""),
        (document({}, {"command": None}), ""),
        (document({}, {}), ""),
        ({"schemaVersion": "1.4", "workflow": {"tasks": [{"name": "x_ID1", "category": "mAdd", "type": "compute"}]}}, "mAdd"),
        ({"schemaVersion": "1.4", "workflow": {"tasks": [{"name": "x_ID1", "type": "compute"}]}}, ""),
        ({"schemaVersion": "1.3", "workflow": {"tasks": [{"name": "x_ID1", "type": "mAdd"}]}}, "mAdd"),
    ],
)
def test_the_kind_of_a_task_is_kept(tmp_path: Path, content: Any, kind: str) -> None:
    (tmp_path / "w.json").write_text(json.dumps(content))
    assert from_wfformat(tmp_path / "w.json").tasks[0].kind == kind


@pytest.mark.parametrize("execution", [{"command": {"program": 3}}, {"command": []}, {"category": {}}])
def test_a_kind_that_is_no_text_is_refused(tmp_path: Path, execution: dict[str, Any]) -> None:
    (tmp_path / "w.json").write_text(json.dumps(document({}, execution)))
    with pytest.raises(InputError, match="expected"):
        from_wfformat(tmp_path / "w.json")
