"""Reports are read and merged: exports of Nsight Systems of several versions, traces of PyTorch, clocks, and what is wrong with them."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_reports import change, export

from armillary.errors import InputError
from armillary.files.nsight import NULL
from armillary.observability.traces import Run, aligned, lost, merge, read_kineto, read_nsys, read_run, run_of_timeline
from armillary.observability.traces.synthesis.exports import BEGAN_NS, Clock, write_exports
from armillary.observability.traces.synthesis.kineto_json import write_traces
from armillary.observability.traces.synthesis.programs import Design, simulated
from armillary.observability.traces.workload import clocks_of
from armillary.testing.fuzzing import damaged_bytes

ONE = [{"start": 1000, "end": 5551, "name": "gemm", "correlation": 1}]
CALL = [(100, 900, "cudaLaunchKernel_v7000", 1)]


def rows(run: Run, kind: str) -> list[tuple[Any, ...]]:
    """(start, end, label of the thread, name, correlation) of all spans of a kind."""
    one = run.of(kind)
    labels = [thread.label or str(thread.number) for thread in run.threads]
    return [
        (int(s), int(e), labels[t], run.names[n], int(c)) for s, e, t, n, c in zip(one.start, one.end, one.thread, one.name, one.correlation)
    ]


def test_an_export_becomes_a_run(tmp_path: Path) -> None:
    path = export(
        tmp_path / "a.sqlite", calls=CALL, kernels=ONE, copies=[(6000, 7000, 4096, 2), (7000, 7100, 8, 3, 2)], ranges=[(50, 8000, "step")], rank=3
    )
    run = read_nsys(path)
    assert rows(run, "kernel") == [(1000, 5551, "CUDA-D0.S7", "gemm", 1)]
    assert rows(run, "call") == [(100, 900, "1234", "cudaLaunchKernel", 1)]
    assert [row[:4] for row in rows(run, "memory")] == [
        (6000, 7000, "CUDA-D0.S7", "CUDA memcpy Host-to-Device"), (7000, 7100, "CUDA-D0.S7", "CUDA memcpy Device-to-Host"),
    ]  # fmt: skip
    assert run.of("memory").more["bytes"].tolist() == [4096, 8]
    assert rows(run, "nvtx") == [(50, 8000, "1234", "step", 0)]
    assert run.launches[run.of("kernel").more["launch"]].tolist() == [[8, 1, 1, 128, 1, 1, 0, 0, 0, 32]]
    assert [(one.host, one.pid, one.rank) for one in run.processes] == [("node0", 1234, 3)]
    assert run.notes == ()
    assert run.frame().height == len(run) == 5


def test_tables_and_columns_may_be_missing(tmp_path: Path) -> None:
    empty = read_nsys(export(tmp_path / "empty.sqlite"))
    assert len(empty) == 0
    assert empty.lost().shares == dict.fromkeys(("imbalance", "transfers", "communication", "launch", "host", "sync"), 0.0)
    assert empty.frame().height == 0
    old = export(tmp_path / "old.sqlite", kernels=ONE)
    change(old, *(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {name}" for name in ("globalPid", "greenContextId", "graphNodeId")))
    change(old, "DROP TABLE TARGET_INFO_SESSION_START_TIME", "DROP TABLE ENUM_CUDA_MEMCPY_OPER", "UPDATE META_DATA_EXPORT SET value = '9'")
    run = read_nsys(old)
    assert rows(run, "kernel") == [(1000, 5551, "CUDA-D0.S7", "gemm", 1)]
    assert run.processes[0].pid == 1234  # the only process that the contexts name
    assert run.began_ns == (None,)
    assert "schema 9.9.9 is not one of 3.11 to 3.16" in run.notes[0]


def test_events_without_an_end_and_odd_names_are_read(tmp_path: Path) -> None:
    path = export(
        tmp_path / "a.sqlite", ranges=[(10, None, "open"), (20, 400, "two\nlines")],
        MPI_START_WAIT_EVENTS=[(30, None, (1 << 56) | (1234 << 24) | 5, "@MPI_Wait", 7)],
    )  # fmt: skip
    change(path, "UPDATE StringIds SET value = CAST(x'fe41' AS TEXT) WHERE value = 'open'")
    run = read_nsys(path)
    assert rows(run, "nvtx") == [(10, 400, "1234", "\ufffdA", 0), (20, 400, "1234", "two\nlines", 0)]
    assert rows(run, "mpi") == [(30, 30, "5", "MPI_Wait", 0)]
    assert run.notes == ("MPI_START_WAIT_EVENTS has events without an end, which are taken to end where they start.",)


def test_domains_inline_texts_and_payloads_of_nvtx(tmp_path: Path) -> None:
    thread = (1 << 56) | (1234 << 24) | 1234
    nothing = (None,) * 7

    def row(start: int, end: int | None, kind: int, text: str | None, number: str | None, domain: int, payload: str | None = None) -> tuple[Any, ...]:
        return (start, end, kind, None, None, None, text, thread, None, number, domain, *nothing[:6], None, payload, None)

    init = '{"Communicator ID": 99, "No. of ranks": 8, "Rank": 5, "CUDA device": 1, "kind": "ring", "deep": [1]}'
    small = '{"Communicator ID": 98, "No. of ranks": 2, "Rank": 1}'
    events = [
        row(0, None, 75, "NCCL", None, 4), row(1, None, 75, "app", None, 9), row(10, 20, 59, None, "@ncclCommInitRank", 4, init),
        row(30, 40, 59, "inline", None, 9, "{broken"), row(50, 60, 60, None, "@apart", 0), row(70, 80, 59, None, "@ncclCommInitRank", 4, small),
    ]  # fmt: skip
    run = read_nsys(export(tmp_path / "a.sqlite", NVTX_EVENTS=events))
    spans = run.of("nvtx")
    assert [(run.names[n], run.domains[d], bool(p)) for n, d, p in zip(spans.name, spans.more["domain"], spans.more["pushed"])] == [
        ("ncclCommInitRank", "NCCL", True), ("inline", "app", True), ("apart", "", False), ("ncclCommInitRank", "NCCL", True),
    ]  # fmt: skip
    assert dict(run.payloads[spans.more["payload"][0]])["kind"] == "ring"
    assert run.payloads[spans.more["payload"][1]] == ()
    assert run.processes[0].rank == 5  # that of the larger communicator
    target = tmp_path / "out"
    run.to_paraver(target)
    records = target.with_suffix(".prv").read_text().splitlines()
    assert "2:1:1:1:1:10:9502:99:9503:8:9504:5:9501:1:9505:1:9500:3" in records
    assert "2:1:1:1:1:20:9501:0:9502:0:9503:0:9504:0:9505:0:9500:0" in records
    assert [line.split(":")[6] for line in records if line.startswith("2:1:1:1:1:30") or line.startswith("2:1:1:1:1:50")] == ["9700", "9004"]


def test_graphs_and_gpu_metrics_are_read(tmp_path: Path) -> None:
    path = export(
        tmp_path / "a.sqlite", kernels=ONE, CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[(10, 90, 0, 3, 4, 1, None, 7, 11, (1 << 56) | (1234 << 24))],
        GPU_METRICS=[(0, 100, 256, 2, 55), (0, 200, 256, 2, 66), (0, 300, 257, 2, 77)],
        TARGET_INFO_GPU_METRICS=[(256, 1, "GA100", 2, "SMs Active [Throughput %]")],
    )  # fmt: skip
    run = read_nsys(path)
    assert [row[:4] for row in rows(run, "graph")] == [(10, 90, "CUDA-D0.S7", "Graph 3")]
    assert run.metrics == {2: "SMs Active [Throughput %]"}
    assert run.of("metric").more["value"].tolist() == [55, 66]  # a device without a context belongs to no process


# Clocks


def test_collectives_align_clocks_and_leave_a_straggler_late(tmp_path: Path) -> None:
    design = Design(ranks=2, iterations=12, kernels=10, imbalance=0.3, straggler=True)
    program = simulated(design, 5)
    write_exports(program, tmp_path, [Clock(), Clock(began_ns=-1_000_000, error_ns=250_000)])
    apart, run = read_run(tmp_path, align=False), read_run(tmp_path)
    found = run.alignment
    assert found is not None
    assert (found.by, found.collectives) == ("collectives", 12)
    assert abs(found.offsets_ns[1] - found.offsets_ns[0] - 250_000) < 1_000

    def collectives(one: Run) -> tuple[np.ndarray, np.ndarray]:
        spans = one.of("kernel").of(one.communicates())
        device = one.device_of_thread()[spans.thread]
        return np.stack([spans.start[device == k] for k in (0, 1)]), np.stack([spans.end[device == k] for k in (0, 1)])

    assert np.abs(np.diff(collectives(apart)[1], axis=0)).min() > 200_000
    start, end = collectives(run)
    assert np.median(np.abs(end[0] - end[1])) < 1_000
    late = start[1] - start[0]
    true = np.diff(program.device_start[:, program.operation == 3], axis=0)[0]
    assert np.abs(late - true).max() < 3_000
    assert np.abs(late).min() > 10_000


def test_the_end_of_mpi_init_aligns_clocks(tmp_path: Path) -> None:
    thread = lambda pid: (1 << 56) | (pid << 24) | pid  # noqa: E731
    for number, (pid, late) in enumerate(((11, 0), (12, 7_000))):
        export(
            tmp_path / f"{number}.sqlite", host=f"n{number}", pid=pid, rank=number, kernels=[{"start": 9_000 + late, "end": 9_500 + late, "name": "k", "correlation": 1}],
            MPI_OTHER_EVENTS=[(1_000 + late - 500 * number, 2_000 + late, thread(pid), "@MPI_Init")],
        )  # fmt: skip
    run = read_run(tmp_path)
    assert run.alignment is not None
    assert (run.alignment.by, run.alignment.offsets_ns) == ("the end of MPI_Init", (-3_500.0, 3_500.0))
    assert len(set(run.of("kernel").start.tolist())) == 1
    assert len(set(run.of("mpi").start.tolist())) == 2


def test_merging_does_not_change_the_runs_that_it_is_given(tmp_path: Path) -> None:
    paths = write_exports(simulated(Design(ranks=3, iterations=3, kernels=5), 2), tmp_path, clocks_of(3, np.random.default_rng(2)))
    runs = [read_nsys(path) for path in paths]
    before = [rows(run, "kernel") for run in runs]
    whole = merge(runs)
    again = aligned(merge(runs, align=False))
    assert [rows(run, "kernel") for run in runs] == before
    assert rows(whole, "kernel") == rows(again, "kernel") == rows(read_run(tmp_path), "kernel")
    assert len(whole) == sum(map(len, runs))
    assert [one.rank for one in whole.processes] == [0, 1, 2]
    assert all((np.diff(spans.start) >= 0).all() for spans in whole.spans.values())


def test_processes_without_ranks_stand_by_node_and_number(tmp_path: Path) -> None:
    for name, host, pid in (("a", "n2", 5), ("b", "n1", 9), ("c", "n1", 7)):
        export(tmp_path / f"{name}.sqlite", host=host, pid=pid, kernels=ONE)
    assert [(one.host, one.pid) for one in read_run(tmp_path).processes] == [("n1", 7), ("n1", 9), ("n2", 5)]


# Kineto


def event(**more: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": 0, "tid": 7, **more}


KINETO = {
    "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        event(cat="cuda_runtime", name="cudaLaunchKernel", pid=9, tid=9, ts=100, dur=3, args={"correlation": 5}),
        event(cat="kernel", name="gemm", ts=110.125, dur=20.25, args={
            "device": 0, "stream": 7, "correlation": 5, "grid": [4, 2, 1], "block": [64, 1, 1], "registers per thread": 40, "shared memory": 1024,
        }),
        event(cat="gpu_memcpy", name="Memcpy DtoH (Device -> Pinned)", ts=140, dur=1, args={"device": 0, "stream": 9, "correlation": 6, "bytes": 77}),
        event(cat="user_annotation", name="step", pid=9, tid=9, ts=90, dur=100), event(cat="cpu_op", name="aten::mm", pid=9, tid=9, ts=95, dur=9),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 5, "pid": 9, "tid": 9, "ts": 100},
    ],
}  # fmt: skip


def test_a_trace_of_pytorch_becomes_a_run(tmp_path: Path) -> None:
    (path := tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(KINETO).encode()))
    run = read_kineto(path)
    assert rows(run, "kernel") == [(20_125, 40_375, "CUDA-D0.S7", "gemm", 5)]
    assert rows(run, "call") == [(10_000, 13_000, "9", "cudaLaunchKernel", 5)]
    assert [row[:4] for row in rows(run, "memory")] == [(50_000, 51_000, "CUDA-D0.S9", "CUDA memcpy Device-to-Host")]
    assert [row[3] for row in rows(run, "nvtx")] == ["step"]
    assert [row[3] for row in rows(read_kineto(path, ranges=("cpu_op",)), "nvtx")] == ["aten::mm"]
    assert run.launches.tolist() == [[4, 2, 1, 64, 1, 1, 1024, 0, 0, 40]]
    assert run.processes[0].rank == 1


def test_both_kinds_of_reports_say_the_same(tmp_path: Path) -> None:
    program = simulated(Design(ranks=3, iterations=4, kernels=12, transfers=80_000.0, host=40_000.0), 6)
    (one := tmp_path / "nsys").mkdir()
    (two := tmp_path / "kineto").mkdir()
    clocks = clocks_of(3, np.random.default_rng(9))
    write_exports(program, one, clocks)
    write_traces(program, two, clocks, packed=True)
    first, second = lost(read_run(one)), lost(read_run(two))
    # Kineto's times are decimal microseconds counted from its base, so that a nanosecond may be lost.
    assert np.allclose(first.table, second.table, atol=50_000)
    assert np.allclose(first.useful, second.useful, atol=2_000)


def test_a_timeline_of_ours_becomes_a_run() -> None:
    from armillary.engine.timeline import Timeline

    timeline = Timeline()
    track = timeline.track("node", "cpu")
    timeline.span(track, "work", 0.5, 1.5)
    run = run_of_timeline(timeline)
    assert rows(run, "nvtx") == [(500_000_000, 1_500_000_000, "1", "work", 0)]


# What is wrong with reports


def refused(path: Path) -> str:
    with pytest.raises(InputError) as raised:
        read_run(path)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_wrong_files_are_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"report")
    assert "nsys export -t sqlite a.nsys-rep" in refused(tmp_path / "a.nsys-rep")
    (tmp_path / "a.sqlite").write_bytes(b"SQLite format 3\0" + bytes(2000))
    assert "damaged header" in refused(tmp_path / "a.sqlite")
    (tmp_path / "t.json").write_text(json.dumps(KINETO)[:300])
    assert "t.json" in refused(tmp_path / "t.json")
    (empty := tmp_path / "empty").mkdir()
    assert "found 0 files that end in" in refused(empty)
    (tmp_path / "list.json").write_text("[1, 2]")
    assert "found no event of a GPU" not in refused(tmp_path / "a.nsys-rep")


def test_a_truncated_trace_is_said_with_its_offset(tmp_path: Path) -> None:
    (path := tmp_path / "t.json").write_text(json.dumps(KINETO)[:300])
    assert any(word in refused(path) for word in ("column", "offset", ":1:"))


def test_an_end_before_its_start_is_said_with_its_row(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", kernels=[*ONE, {"start": 9, "end": 3, "name": "k", "correlation": 2}])
    assert "a.sqlite: CUPTI_ACTIVITY_KIND_KERNEL: row 2: found an end at 3 after a start at 9" in refused(path)


def test_two_reports_of_one_process_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        export(tmp_path / f"{name}.sqlite", kernels=ONE)
    assert "found two reports of process 1234 on node0" in refused(tmp_path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = -7", "correlationId outside of 32 bits"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 1 << 40", "a device or stream outside of 32 bits"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = -1", "a device or stream outside of 32 bits"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 9223372036854775807", "row 1: found an end"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon'", "no whole number"),
    ],
)
def test_numbers_that_cannot_be_are_refused(tmp_path: Path, statement: str, message: str) -> None:
    assert message in refused(change(export(tmp_path / "a.sqlite", calls=CALL, kernels=ONE), statement))


def test_rows_without_a_start_are_left_out(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", MPI_OTHER_EVENTS=[(5, 6, 1 << 24, "@MPI_Init")])
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)")
    connection.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?)", [(None, 5), (1, 2)])
    connection.commit()
    connection.close()
    run = read_nsys(path)
    assert run.of("kernel").start.tolist() == [1]
    assert NULL not in run.of("kernel").end.tolist()


def test_most_events_bounds_what_is_read(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", kernels=[{"start": k, "end": k + 1, "name": "k", "correlation": k} for k in range(50)])
    with pytest.raises(InputError, match="more events than are accepted"):
        read_nsys(path, most_events=49)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ts": "soon"}, "found ts soon"), ({"dur": -1}, "found dur -1"), ({"ts": 1e300}, "found ts"), ({"args": {"device": -1}}, "found device -1"),
        ({"args": {"grid": [1, 2]}}, "found grid"), ({"args": {"correlation": 1 << 40}}, "found correlation"),
    ],
)  # fmt: skip
def test_wrong_events_of_pytorch_are_said_with_their_number(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    events = [event(cat="kernel", name="k", ts=1, dur=1), event(**{"cat": "kernel", "name": "k", "ts": 1, "dur": 1, **wrong})]
    (path := tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    assert f"t.json: event 1: {message}" in refused(path)


def test_a_region_of_one_name_in_two_domains_is_ambiguous(tmp_path: Path) -> None:
    thread = (1 << 56) | (1234 << 24) | 1234
    rest = (None,) * 9
    events = [(0, None, 75, None, None, None, "lib", thread, None, None, 3, *rest)]
    events += [(10, 20, 59, None, None, None, None, thread, None, "@step", domain, *rest) for domain in (0, 3)]
    run = read_nsys(export(tmp_path / "a.sqlite", kernels=ONE, NVTX_EVENTS=events))
    with pytest.raises(InputError, match='found the region "step" in several domains of NVTX; expected ":step" or "lib:step"'):
        run.efficiency("step")
    assert run.efficiency("lib:step").host_elapsed_ns == 10


@pytest.mark.parametrize("kind", ["nsys", "kineto"])
def test_damaged_reports_are_read_or_refused(tmp_path: Path, kind: str) -> None:
    program = simulated(Design(ranks=1, iterations=2, kernels=6, transfers=9e3), 1)
    [path] = (write_exports if kind == "nsys" else write_traces)(program, tmp_path, [Clock()])
    sound, rng, refusals = path.read_bytes(), random.Random(kind), 0
    for _ in range(150):
        path.write_bytes(damaged_bytes(sound, rng))
        try:
            run = read_run(path)
            run.lost()
            run.to_paraver(tmp_path / "out")
        except InputError:
            refusals += 1
    assert refusals > 20


def test_began_is_where_the_sessions_said(tmp_path: Path) -> None:
    for number in range(2):
        export(tmp_path / f"{number}.sqlite", host=f"n{number}", pid=number + 1, utc_ns=BEGAN_NS + 1_000_000 * number, kernels=ONE)
    assert sorted(read_run(tmp_path).of("kernel").start.tolist()) == [1_000, 1_001_000]
