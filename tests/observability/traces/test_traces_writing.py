"""Traces for Paraver and Perfetto: exact records, both read back, every number with a name, and nothing left behind where writing fails."""

from __future__ import annotations

import errno
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_reports import export, run_of

from armillary.errors import InputError
from armillary.observability.traces import Run, peer, read_meanings, read_nsys, read_paraver, read_run
from armillary.observability.traces.run.model import CALL, GRAPH, KERNEL, MEMORY, MPI, NVTX
from armillary.observability.traces.synthesis.exports import Clock, write_exports
from armillary.observability.traces.synthesis.programs import Design, simulated
from armillary.observability.traces.workload import clocks_of
from armillary.observability.traces.writers import paraver
from armillary.observability.traces.writers.whole import whole_files


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three nodes with kernels, copies, collectives of NCCL and MPI, and ranges."""
    room = tmp_path_factory.mktemp("reports")
    design = Design(ranks=3, iterations=4, kernels=12, transfers=9e3, by_mpi=True, overlapped_communication=2e4, streams=2, sync=5e3)
    write_exports(simulated(design, 3), room, clocks_of(3, np.random.default_rng(1)))
    return read_run(room)


def test_one_kernel_is_exactly_these_records(tmp_path: Path) -> None:
    path = export(
        tmp_path / "a.sqlite", calls=[(100, 900, "cudaLaunchKernel", 1)], kernels=[{"start": 1000, "end": 5551, "name": "gemm", "correlation": 1}]
    )
    read_nsys(path).to_paraver(tmp_path / "out", states=True)
    zeros = "".join(f":{number}:0" for number in range(9101, 9111))
    assert (tmp_path / "out.prv").read_text().splitlines() == [
        "#Paraver (01/01/70 at 00:00):5551_ns:1(2):1:1(2:1)",
        "2:1:1:1:1:100:63000000:1:9200:1",
        "3:1:1:1:1:100:100:2:1:1:2:1000:1000:0:55001",
        "2:1:1:1:1:900:63000000:0:9200:0",
        "1:2:1:1:2:1000:5551:1",
        "2:2:1:1:2:1000:63000006:2:9101:8:9102:1:9103:1:9104:128:9105:1:9106:1:9107:0:9108:0:9109:0:9110:32:9200:1",
        f"2:2:1:1:2:5551:63000006:0{zeros}:9200:0",
    ]
    meanings = read_meanings(tmp_path / "out.pcf")
    assert meanings[63000000] == {0: "End", 1: "cudaLaunchKernel"}
    assert meanings[63000006] == {0: "End", 2: "gemm"}
    assert "LEVEL THREAD SIZE 2\nTHREAD 1.1.1\nCUDA-D0.S7" in (tmp_path / "out.row").read_text()


TYPES = {CALL: 63000000, MEMORY: 63000001, KERNEL: 63000006, GRAPH: 63000008, MPI: 50000002, NVTX: 9600}


def told(run: Run, kind: str, chosen: Any = None) -> Counter[tuple[int, ...]]:
    """(task, thread within it, start, end) of all spans of a kind."""
    one = run.of(kind) if chosen is None else run.of(kind).of(chosen)
    within, place = Counter[int](), []
    for thread in run.threads:
        within[thread.process] += 1
        place.append((thread.process + 1, within[thread.process]))
    base = min(0, run.start)
    return Counter((*place[t], int(s) - base, int(e) - base) for t, s, e in zip(one.thread, one.start, one.end) if e > s)


def test_paraver_read_back_is_the_run(program: Run, tmp_path: Path) -> None:
    size = program.to_paraver(tmp_path / "out.prv", states=True)
    assert size == sum(one.stat().st_size for one in tmp_path.iterdir())
    back, meanings = read_paraver(tmp_path / "out.prv"), read_meanings(tmp_path / "out.pcf")
    talks = program.communicates()
    for kind, number, chosen in (
        (CALL, TYPES[CALL], None), (MEMORY, TYPES[MEMORY], None), (KERNEL, TYPES[KERNEL], ~talks), (KERNEL, 63000007, talks), (NVTX, 9600, None),
        (MPI, 50000002, program.of(MPI).more["type"] == 50000002), (MPI, 50000003, program.of(MPI).more["type"] == 50000003),
    ):  # fmt: skip
        found = back.intervals(number)
        assert Counter(found.select("task", "thread", "start", "end").iter_rows()) == told(program, kind, chosen), number
        spans = program.of(kind) if chosen is None else program.of(kind).of(chosen)
        names = Counter(meanings[number][value] for value in found["value"].to_list())
        assert names == Counter(program.names[n] for n, s, e in zip(spans.name, spans.start, spans.end) if e > s), number
    events = back.events
    assert all(value in meanings[kind] for kind, value in events.select("type", "value").unique().iter_rows() if meanings.get(kind))
    assert set(events["type"].unique().to_list()) <= set(meanings)
    # One line per activity that a call launched; tags by kind; bytes of copies.
    assert back.lines.height == sum(len(program.of(kind)) for kind in (KERNEL, MEMORY))
    assert Counter(back.lines["tag"].to_list()) == {55001: len(program.of(KERNEL)), 55002: len(program.of(MEMORY))}
    assert sorted(back.lines.filter(back.lines["tag"] == 55002)["size"].to_list()) == sorted(program.of(MEMORY).more["bytes"].tolist())
    assert set(back.states["state"].unique().to_list()) == {1, 3, 10}
    assert back.end_ns == program.end - min(0, program.start)


def test_records_are_in_order_and_objects_are_those_of_the_header(program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paraver, "STRETCH", 40)  # many stretches, so that spans reach over their borders
    monkeypatch.setattr(paraver, "_SAMPLE", 8)
    program.to_paraver(tmp_path / "many", states=True)
    monkeypatch.undo()
    program.to_paraver(tmp_path / "one", states=True)
    many, one = ((tmp_path / f"{name}.prv").read_text().splitlines() for name in ("many", "one"))
    times = [int(line.split(":")[5]) for line in many[1:]]
    assert times == sorted(times)
    assert Counter(many) == Counter(one)
    back = read_paraver(tmp_path / "one.prv")
    rows = (tmp_path / "one.row").read_text().splitlines()
    sizes = {line.split()[1]: (int(line.split()[3]), number) for number, line in enumerate(rows) if line.startswith("LEVEL")}
    assert sizes["CPU"][0] == sum(back.cpus) == len(program.threads)
    assert sizes["THREAD"][0] == sum(back.threads) == len(program.threads)
    assert (sizes["NODE"][0], sizes["TASK"][0]) == (len(back.cpus), len(back.threads)) == (3, 3)
    for count, at in sizes.values():
        assert all(rows[at + 1 + k].strip() for k in range(count))
        assert at + 1 + count == len(rows) or rows[at + 1 + count] == ""
    assert back.events["cpu"].max() == len(program.threads)


def test_two_runs_of_a_program_have_equal_numbers(tmp_path: Path) -> None:
    names = ["zeta", "alpha", "cudaLaunchKernel"]
    for name, order in (("a", [0, 1]), ("b", [1, 0])):
        run_of(names, [(10 * k, 10 * k + 5, 1, one, 0) for k, one in enumerate(order)], calls=[(0, 1, 0, 2, 9)]).to_paraver(tmp_path / name)
    assert (tmp_path / "a.pcf").read_text() == (tmp_path / "b.pcf").read_text()


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.integers(-500, 2000), st.integers(0, 900), st.integers(1, 2)), max_size=25),
    names=st.lists(st.text(max_size=12), min_size=1, max_size=4),
)
def test_any_spans_and_names_are_read_back(tmp_path: Path, rows: list[tuple[int, int, int]], names: list[str]) -> None:
    # On one stream a kernel starts after the one before it ended, as on a device.
    free, kernels = {1: -1000, 2: -1000}, []
    for k, (start, length, stream) in enumerate(sorted(rows)):
        begin = max(start, free[stream])
        free[stream] = begin + length
        kernels.append((begin, begin + length, stream, k % len(names), k))
    run = run_of(names, kernels)
    run.to_paraver(tmp_path / "out")
    back = read_paraver(tmp_path / "out.prv")
    found = back.intervals(63000006).vstack(back.intervals(63000007)).filter(pl.col("start") < pl.col("end"))
    assert Counter(found.select("task", "thread", "start", "end").iter_rows()) == told(run, KERNEL)
    run.to_chrome(tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert Counter(event["name"] for event in events if event["ph"] == "X") == Counter(names[row[3]] for row in kernels)


def test_perfetto_read_back_is_the_run(program: Run, tmp_path: Path) -> None:
    size = program.to_chrome(tmp_path / "out.json.gz")
    assert size == (tmp_path / "out.json.gz").stat().st_size
    events = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))["traceEvents"]
    for kind, category in ((KERNEL, "kernel"), (MEMORY, "gpu_memcpy"), (CALL, "cuda_runtime"), (MPI, "mpi"), (NVTX, "user_annotation")):
        found = Counter(
            (event["name"], event["tid"], round(1000 * event["ts"]), round(1000 * event["dur"])) for event in events if event.get("cat") == category
        )
        one = program.of(kind)
        assert found == Counter(
            (program.names[n], int(t), int(s), int(e - s)) for n, t, s, e in zip(one.name, one.thread, one.start, one.end)
        ), kind
    kernel = next(event for event in events if event.get("cat") == "kernel" and event["name"] == "gemm_f16_128x128")
    assert (kernel["args"]["grid"], kernel["args"]["block"]) == ([64, 1, 1], [128, 1, 1])
    starts, ends = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
    assert starts.keys() == ends.keys()
    assert len(starts) == sum(len(program.of(kind)) for kind in (KERNEL, MEMORY))
    assert all(starts[k]["ts"] <= ends[k]["ts"] for k in starts)
    processes = [event["args"]["name"] for event in events if event.get("name") == "process_name"]
    assert processes == ["rank 0 node0000 2000", "rank 1 node0001 2001", "rank 2 node0002 2002"]


def test_a_packed_trace_is_the_same(program: Run, tmp_path: Path) -> None:
    program.to_paraver(tmp_path / "a")
    program.to_paraver(tmp_path / "b", packed=True)
    assert gzip.decompress((tmp_path / "b.prv.gz").read_bytes()) == (tmp_path / "a.prv").read_bytes()
    assert read_paraver(tmp_path / "b.prv.gz").events.equals(read_paraver(tmp_path / "a.prv").events)


def test_a_write_that_fails_leaves_what_was_there(program: Run, tmp_path: Path) -> None:
    (tmp_path / "out.prv").write_text("old")
    with pytest.raises(InputError, match=r"date: found"):
        program.to_paraver(tmp_path / "out", date="today")
    with pytest.raises(InputError, match=r"cannot be written"):
        program.to_paraver(tmp_path / "none" / "out")
    with pytest.raises(InputError, match=r"out.prv: cannot be written: No space left"), whole_files([tmp_path / "out.prv", tmp_path / "out.pcf"]) as (one, _):
        one.write(b"new")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert [one.name for one in tmp_path.iterdir()] == ["out.prv"]
    assert (tmp_path / "out.prv").read_text() == "old"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found an empty file"), ("hello\n", "expected the first line of a Paraver trace"),
        ("#Paraver (01/01/70 at 00:00):10_ns:1(1):1:1(1:1)\n2:1:1:1:1:5:7\n", ":2: found"),
        ("#Paraver (01/01/70 at 00:00):10_ns:1(1):1:1(1:1)\n2:1:1:1:1:5:x:1\n", ":2: found"),
        ("#Paraver (01/01/70 at 00:00):10_ns:1(1):1:1(1:1)\n9:1:1\n", "expected a record of Paraver"),
        ("#Paraver (01/01/70 at 00:00):10_ns:1(1):1:1(1:1)\n2:1:1:1:1:5:1:99999999999999999999\n", ":2: found"),
    ],
)  # fmt: skip
def test_wrong_traces_of_paraver_are_said_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    (path := tmp_path / "t.prv").write_text(content)
    with pytest.raises(InputError) as raised:
        read_paraver(path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


# The published program


def kernel_records(path: Path) -> Counter[tuple[int, ...]]:
    """(time, type, or 0 at an end, grid, block, shared and local memory, registers, correlation) of kernels."""
    found = Counter[tuple[int, ...]]()
    for line in path.read_text().splitlines()[1:]:
        fields = [int(one) for one in line.split(":")]
        pairs = dict(zip(fields[6::2], fields[7::2]))
        kind = next((one for one in (63000006, 63000007) if one in pairs), 0)
        if fields[0] == 2 and kind:
            found[(fields[5], kind, int(pairs[kind] > 0), *(pairs[number] for number in range(9101, 9111)), pairs[9200])] += 1
    return found


def test_the_published_program_writes_the_same_kernels(tmp_path: Path) -> None:
    program = peer.found_program()
    if program is None:
        pytest.skip("nsys2prv is not installed")
    design = Design(ranks=1, iterations=3, kernels=20, transfers=2e4, overlapped_communication=3e4)
    [path] = write_exports(simulated(design, 1), tmp_path, [Clock()])
    (room := tmp_path / "room").mkdir()
    peer.prepare(path, room)
    theirs = peer.convert(program, room)
    read_nsys(path).to_paraver(tmp_path / "ours")
    ours = kernel_records(tmp_path / "ours.prv")
    assert len(ours) > 60
    assert kernel_records(theirs) == ours
    lines = [[int(one) for one in line.split(":")] for line in theirs.read_text().splitlines() if line.startswith("3:")]
    back = read_paraver(tmp_path / "ours.prv").lines
    assert sorted((one[5], one[11], one[13], one[14]) for one in lines) == sorted(back.select("time", "to_time", "size", "tag").iter_rows())
