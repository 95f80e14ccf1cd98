"""Files of other tools: what they say comes out, and what is wrong with them is said in one line."""

from __future__ import annotations

import json
import operator
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.tasks import Graph, Threads, Virtual, shapes
from armillary.tasks.formats import from_dot, from_rec, from_stg, from_wfformat, trace_from_rec
from armillary.tasks.shapes import cholesky

NEW: dict[str, Any] = {
    "name": "w",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "b", "id": "t2", "parents": ["t1"], "children": [], "inputFiles": ["f"], "outputFiles": []},
                {"name": "a", "id": "t1", "parents": [], "children": ["t2"], "inputFiles": [], "outputFiles": ["f"]},
            ],
            "files": [{"id": "f", "sizeInBytes": 100}],
        },
        "execution": {"tasks": [{"id": "t1", "runtimeInSeconds": 2.5, "coreCount": 2}, {"id": "t2", "runtimeInSeconds": 1}]},
    },
}
OLD = {
    "name": "w",
    "schemaVersion": "1.3",
    "workflow": {
        "tasks": [
            {"name": "a", "runtime": 2.5, "parents": [], "files": [{"link": "output", "name": "f", "size": 100}]},
            {"name": "b", "runtime": 1, "parents": ["a"], "files": [{"link": "input", "name": "f", "size": 100}]},
        ]
    },
}


def written(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "file"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("document", [NEW, OLD], ids=["1.5", "1.3"])
def test_a_workflow_runs_in_the_time_that_it_says(tmp_path: Path, document: Any) -> None:
    g = from_wfformat(written(tmp_path, document))
    assert (len(g), g.edges, g.handles[0].nbytes) == (2, 1, 100)
    run = g.run(Virtual(2))
    run.trace.check(g)
    assert run.seconds == 3.5
    assert [t.name for t in g] == ["a", "b"]


def changed(change: Any) -> dict:
    document = json.loads(json.dumps(NEW))
    change(document["workflow"]["specification"], document)
    return document


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "expected JSON"),
        ("[]", "expected an object"),
        (changed(lambda s, d: d.update(schemaVersion="9")), "unknown schema version"),
        (changed(lambda s, d: s["tasks"][0].update(parents=["t9"])), 'unknown parent "t9"'),
        (changed(lambda s, d: s["tasks"][1].update(parents=["t2"])), "cycle: "),
        (changed(lambda s, d: s["tasks"][0].update(id="t1", parents=[])), "appears twice"),
        (changed(lambda s, d: s["tasks"][1].update(children=["t8"])), 'unknown child "t8"'),
        (changed(lambda s, d: s["files"][0].update(sizeInBytes=-1)), "not negative"),
        (changed(lambda s, d: s["files"][0].update(sizeInBytes=2**54)), "at most"),
        (changed(lambda s, d: s["files"][0].update(sizeInBytes="many")), "sizeInBytes"),
        (changed(lambda s, d: s["tasks"][0].update(inputFiles=["g"])), 'unknown file "g"'),
        (changed(lambda s, d: d["workflow"]["execution"]["tasks"][0].update(runtimeInSeconds=float("nan"))), "finite"),
    ],
)
def test_a_wrong_workflow_is_refused(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        from_wfformat(written(tmp_path, document))
    assert "\n" not in str(caught.value)


def test_an_edge_may_be_told_at_either_end(tmp_path: Path) -> None:
    for change in (lambda s, d: s["tasks"][0].update(parents=[]), lambda s, d: s["tasks"][1].update(children=[])):
        g = from_wfformat(written(tmp_path, changed(change)))
        assert [(t.key, t.before) for t in g.tasks] == [("t2", [1]), ("t1", [])]


def test_too_many_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at most 1"):
        from_wfformat(written(tmp_path, NEW), max_tasks=1)


def test_dot_there_and_back(tmp_path: Path) -> None:
    g = cholesky(4)
    back = from_dot(written(tmp_path, g.to_dot()))
    edges = {(g.tasks[n].key, t.key) for t in g.tasks for n in t.before}
    assert {(back.tasks[n].key, t.key) for t in back.tasks for n in t.before} == edges
    assert back.critical_path().seconds == g.critical_path().seconds


def test_dot_by_hand(tmp_path: Path) -> None:
    g = from_dot(
        written(tmp_path, 'digraph x { rankdir=LR; node [shape=box]; a -> b -> c; a [cost=2 size=8]; "b" [weight="3"]; // end\n c; }')
    )
    assert [(t.key, t.seconds("cpu")) for t in g] == [("a", 2), ("b", 3), ("c", 0)]
    assert g.handles[0].nbytes == 8
    assert g.run(Virtual(2)).seconds == 5


def test_stg_by_hand(tmp_path: Path) -> None:
    g = from_stg(written(tmp_path, "2\n0 0 0\n1 3 1 0 # a\n2 4 1 0\n3 0 2 1 2\n# end\n"))
    assert g.run(Virtual(2)).seconds == 4


def test_records_there_and_back(tmp_path: Path) -> None:
    g = cholesky(4)
    run = g.run(Virtual(3))
    run.trace.to_rec(tmp_path / "tasks.rec", g)
    back = from_rec(tmp_path / "tasks.rec")
    assert sorted((int(t.key), sorted(int(back.tasks[n].key) for n in t.before)) for t in back.tasks) == [
        (t.id, sorted(t.before)) for t in g.tasks
    ]
    assert back.critical_path().seconds == g.critical_path().seconds


@pytest.mark.parametrize(
    ("read", "content", "says"),
    [
        (from_stg, "1\n0 1 1\n", ":2: found 3 columns"),
        (from_stg, "x\n", "whole numbers"),
        (from_stg, "5\n0 1 0\n", "first line says 5"),
        (from_stg, "1\n0 -1 0\n", "not negative"),
        (from_stg, "99999999999\n", "at most"),
        (from_dot, "graph { a -- b }", "expected"),
        (from_dot, "digraph { a -> ; }", "expected the name of a task"),
        (from_dot, "digraph { a -> b; b -> a; }", "cycle: "),
        (from_dot, "digraph { a [cost=x]; }", "expected a number"),
        (from_rec, "Name: x\n", "no JobId"),
        (from_rec, "Name: x\nJobID: 3\n", ':2: unknown key "JobID"'),
        (from_rec, "Name: x\nJobId: 3\nDependsOn: 4\n", 'unknown parent "4"'),
        (from_rec, "Name: x\nJobId: 3\nStartTime: 4\nEndTime: 2\n", "is before"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, read: Any, content: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(written(tmp_path, content))


def test_a_dask_graph_gives_what_dask_gives() -> None:
    dask = pytest.importorskip("dask")
    dsk = {"a": 1, "b": (operator.add, "a", 10), "c": (sum, ["a", "b", 5]), ("d", 0): (operator.mul, "c", "b")}
    g = Graph.from_dask(dsk)
    run = g.run(Threads(2)).raise_first()
    assert run.result(g.task(str(("d", 0)))) == dask.get(dsk, ("d", 0))
    nested = {"a": 1, "b": (operator.add, (operator.mul, "a", 5), 2)}
    g = Graph.from_dask(nested)
    assert (len(g), g.run(Threads(2)).result(g.task("b"))) == (3, dask.get(nested, "b"))
    with pytest.raises(InputError, match="cycle"):
        Graph.from_dask({"a": (abs, "b"), "b": (abs, "a")})


def test_a_dask_collection_gives_what_dask_gives() -> None:
    delayed = pytest.importorskip("dask").delayed
    three = delayed(operator.add)(1, 2)
    collection = delayed(operator.mul)(three, delayed(sum)([three, 4]))
    g = Graph.from_dask(collection)
    assert (len(g), sorted(t.name for t in g.tasks)) == (3, ["add", "mul", "sum"])
    assert g.run(Threads(2)).result(g.task(collection.key)) == collection.compute(scheduler="sync")


def test_a_trace_leaves_as_parquet_and_csv(tmp_path: Path) -> None:
    import polars

    run = cholesky(3).run(Virtual(2))
    run.trace.to_parquet(tmp_path / "t.parquet")
    run.trace.to_csv(tmp_path / "t.csv")
    assert polars.read_parquet(tmp_path / "t.parquet").equals(run.trace.table())
    assert len(polars.read_csv(tmp_path / "t.csv")) == 10


REC = """Name: dgemm_v2
Model: gemm
JobId: 0_7
SubmitOrder: 3
Priority: 2
DependsOn: 0_6
DepLabels: handle 3
WorkerId: 1
MemoryNode: 0
SubmitTime: 0.500000
StartTime: 1.250000
EndTime: 3.750001
Footprint: 1a2b3c
GFlop: 0.033554
Parameters: 960x960
Sizes: 100 200 300
BrandNew: anything
MPIRank: 0

Control: WontUse
JobId: 0_8
SubmitOrder: 4
Handles: 0x1

Name: first
JobId: 0_6
WorkerId: 0
EndTime: 1.000000

Name: never ran
JobId: 0_9
SubmitTime: 4.0
"""


def test_records_are_read_as_a_trace_and_keys_of_newer_versions_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "tasks.rec").write_text(REC)
    found = trace_from_rec(tmp_path / "tasks.rec")
    trace = found.trace
    assert list(trace.names) == ["gemm", "first"]
    assert list(trace.keys) == ["0_7", "0_6"]
    assert trace["started"].tolist() == [1_250_000, 0], "a time of 0 is left out"
    assert trace["ended"].tolist() == [3_750_001, 1_000_000]
    assert trace["worker"].tolist() == [1, 0]
    assert found.workers == ("0", "1")
    assert found.flops[0] == pytest.approx(33_554_000.0)
    assert found.bytes[0] == 600.0
    assert np.isnan(found.flops[1])
    graph = from_rec(tmp_path / "tasks.rec")
    assert [task.key for task in graph.tasks] == ["0_7", "0_8", "0_6", "0_9"]


def test_workers_of_several_ranks_are_different_workers(tmp_path: Path) -> None:
    rows = [f"Name: a\nJobId: {rank}_{i}\nWorkerId: {i}\nStartTime: 1\nEndTime: 2\nMPIRank: {rank}\n" for rank in (0, 1) for i in (0, 1)]
    (tmp_path / "tasks.rec").write_text("\n".join(rows))
    found = trace_from_rec(tmp_path / "tasks.rec")
    assert found.workers == ("0/0", "0/1", "1/0", "1/1")
    assert found.trace["worker"].tolist() == [0, 1, 2, 3]


def test_a_run_written_as_records_is_the_same_trace(tmp_path: Path) -> None:
    g = shapes.cholesky(4, cost=0.001)
    run = g.run(Virtual(3))
    run.trace.to_rec(tmp_path / "tasks.rec", g)
    back = trace_from_rec(tmp_path / "tasks.rec").trace
    for column in ("worker", "started", "ended"):
        assert back[column].tolist() == run.trace[column].tolist()
    assert [back.names[i] for i in back["task"]] == [run.trace.names[i] for i in run.trace["task"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Name: a\nJobId: 1\n", "no task that ran"),
        ("Name: a\nWorkerId: 0\nEndTime: 1\n", "no JobId"),
        ("Name: a\nJobId: 1\nWorkerId: x\nEndTime: 1\n", "tasks.rec:3: WorkerId"),
        ("Name: a\nJobId: 1\nWorkerId: 0\nStartTime: 3\nEndTime: 1\n", "is before"),
        ("Name: a\nJobId: 1\nWorkerId: 0\nEndTime: nan\n", "tasks.rec:4: EndTime"),
        ("Name: a\nJobId: 1\nWorkerId: 0\nEndTime: 1e300\n", "at most"),
        ("Name: a\nJobId: 1\nWorkerId: 0\nEndTime: 1\nGFlop: many\n", "GFlop"),
        ("no colon\n", "expected Key: value"),
        ("\x01: 3\n", "expected Key: value"),
    ],
)
def test_wrong_records_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "tasks.rec").write_text(text)
    with pytest.raises(InputError, match=said) as found:
        trace_from_rec(tmp_path / "tasks.rec")
    assert "\n" not in str(found.value)


def test_a_run_of_threads_says_when_it_began() -> None:
    before = time.monotonic_ns()
    run = shapes.chain(3, call=lambda: None).run(Threads(1))
    assert run.trace.origin_ns is not None
    assert before <= run.trace.origin_ns <= time.monotonic_ns()
    assert shapes.chain(3).run(Virtual(1)).trace.origin_ns is None
