"""The arena: cases, claims, traces of one's own in each format, wrong ones, and virtual and real runs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.runtime.energy import Readings, domains_of, of_run, read_map, read_trace
from armillary.runtime.energy.arena import energy
from armillary.runtime.energy.simulation.real import factorisation, matrix_for
from armillary.runtime.energy.simulation.runs import ran
from armillary.runtime.energy.workload import folds
from armillary.tasks import Graph, Threads, Virtual

Command = Callable[..., subprocess.CompletedProcess[str]]
HEAD = "name,worker,started,ended\n"


def test_every_claim_has_four_cases_at_least() -> None:
    cases = energy.built_in("small")
    for number, _, claim in energy.claims():
        for kind in claim.kinds:
            assert sum(kind.takes(case.kinds) for case in cases) >= 4, number


def test_claims_look_at_linear_and_misfit_cases_alike_and_leave_out_no_rival() -> None:
    cases = energy.built_in("small")
    claims = [claim for _, _, claim in energy.claims(["taskwise"])]
    for claim in claims[:2]:
        chosen = [case for case in cases if claim.kinds[0].takes(case.kinds)]
        assert {"linear", "misfit"} <= {kind for case in chosen for kind in case.kinds}
    assert any(set(claim.baselines) == set(energy.techniques) - {"taskwise"} for claim in claims)


@pytest.mark.parametrize("kind", ["cholesky", "lu", "qr"])
def test_the_factorisations_that_really_run_are_right(kind: str) -> None:
    a = matrix_for(kind, 48, np.random.Generator(np.random.PCG64DXSM(1)))
    before = a.copy()
    run = factorisation(kind, a, 4).run(Threads(2)).raise_first()
    if kind == "cholesky":
        assert np.tril(a) @ np.tril(a).T == pytest.approx(before)
    elif kind == "lu":
        assert (np.tril(a, -1) + np.eye(48)) @ np.triu(a) == pytest.approx(before)
    else:
        assert np.abs(np.diag(a)) == pytest.approx(np.abs(np.diag(np.linalg.qr(before)[1])))
    trace = of_run(run.trace)
    assert len(trace) == len(run.trace)
    assert trace.origin_ns is not None


def test_copies_to_a_gpu_are_a_column_of_their_own() -> None:
    one = ran("cholesky", 12, "steal", True, 1)
    assert one.trace.types[-1] == "copy"
    assert one.trace.moves == {len(one.trace.types) - 1}
    copies = one.trace.type == len(one.trace.types) - 1
    assert copies.any()
    assert {one.trace.kinds[int(w)] for w in one.trace.worker[copies]} == {"gpu"}
    assert one.trace.kinds[64:] == ("gpu",) * 4


def test_a_run_is_the_same_whenever_it_is_made() -> None:
    first = ran("cholesky", 9, "steal", False, 7)
    ran.cache_clear()
    again = ran("cholesky", 9, "steal", False, 7)
    assert (first.trace.start == again.trace.start).all()
    assert (first.trace.end == again.trace.end).all()
    assert (first.tile == again.tile).all()


def test_a_trace_as_tables_is_the_run_itself(tmp_path: Path) -> None:
    from armillary.tasks import shapes

    graph = shapes.cholesky(6, cost=0.002)
    run = graph.run(Virtual(3), policy="steal")
    straight = of_run(run.trace)
    run.trace.to_csv(tmp_path / "t.csv")
    run.trace.to_parquet(tmp_path / "t.parquet")
    run.trace.to_rec(tmp_path / "tasks.rec", graph)
    for name in ("t.csv", "t.parquet", "tasks.rec"):
        found = read_trace(tmp_path / name)
        assert found.types == straight.types, name
        assert found.workers == ("0", "1", "2")
        assert found.start.tolist() == straight.start.tolist()
        assert found.end.tolist() == straight.end.tolist()
        assert found.type.tolist() == straight.type.tolist()
        assert found.worker.tolist() == straight.worker.tolist()


PAJE = """%EventDef PajeDefineContainerType 1
%  Alias string
%  ContainerType string
%  Name string
%EndEventDef
%EventDef PajeDefineStateType 3
%  Alias string
%  ContainerType string
%  Name string
%EndEventDef
%EventDef PajeDefineEntityValue 6
%  Alias string
%  EntityType string
%  Name string
%  Color color
%EndEventDef
%EventDef PajeCreateContainer 7
%  Time date
%  Alias string
%  Type string
%  Container string
%  Name string
%EndEventDef
%EventDef PajeSetState 10
%  Time date
%  Container string
%  Type string
%  Value string
%EndEventDef
%EventDef PajePushState 11
%  Time date
%  Container string
%  Type string
%  Value string
%EndEventDef
%EventDef PajePopState 12
%  Time date
%  Container string
%  Type string
%EndEventDef
%EventDef PajeSetVariable 13
%  Time date
%  Container string
%  Type string
%  Value double
%EndEventDef
%EventDef PajeSetState 20
%  Time date
%  Container string
%  Type string
%  Value string
%  Size string
%  Params string
%EndEventDef
1 W 0 "Worker"
3 WS W "Worker State"
3 MS 0 "Memory Node State"
6 I WS Idle ".9 .1 .0"
6 B WS Overhead ".5 .18 .0"
7 0.0 w0 W 0 "CPU 0"
7 0.0 w1 W 0 "CUDA 0.0 (a GPU)"
10 0.0 w0 WS I
20 1.5 w0 WS gemm 960 "a b"
10 3.25 w0 WS B
20 4.0 w0 WS trsm 960 ""
10 5.0 w0 WS I
10 0.0 w1 WS I
11 2.0 w1 WS gemm
12 2.75 w1 WS
13 2.0 w0 bw 3.5
10 1.0 m0 MS DriverCopy
"""


def test_paje_states_are_tasks_by_the_files_own_header(tmp_path: Path) -> None:
    (tmp_path / "paje.trace").write_text(PAJE)
    found = read_trace(tmp_path / "paje.trace")
    rows = sorted(zip(found.start.tolist(), found.end.tolist(), (found.types[t] for t in found.type), (found.workers[w] for w in found.worker)))
    assert rows == [
        (1_500_000, 3_250_000, "gemm", "CPU 0"), (2_000_000, 2_750_000, "gemm", "CUDA 0.0 (a GPU)"), (4_000_000, 5_000_000, "trsm", "CPU 0"),
    ]  # fmt: skip
    assert found.kinds == ("cpu", "gpu")


def test_chrome_events_are_tasks(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2}, {"ph": "X", "name": "outer", "pid": 1, "tid": 2, "ts": 0, "dur": 100, "cat": "cpu_op"},
        {"ph": "X", "name": "inner", "pid": 1, "tid": 2, "ts": 90, "dur": 100, "cat": "cpu_op"},
        {"ph": "X", "name": "sgemm", "pid": 0, "tid": 7, "ts": 10.5, "dur": 2.25, "cat": "kernel"},
        {"ph": "X", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 11.0, "dur": 1.0, "cat": "gpu_memcpy"},
    ]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": 1000}))
    found = read_trace(tmp_path / "t.json", category="kernel")
    assert (found.start.tolist(), found.end.tolist(), found.types) == ([11_500], [13_750], ("sgemm",))
    assert found.kinds == ("gpu",)
    with pytest.raises(InputError, match="--category"):
        read_trace(tmp_path / "t.json")


def test_kernels_of_an_nsight_export_are_tasks(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "r.sqlite")
    base.executescript("""
        CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);
        INSERT INTO META_DATA_EXPORT VALUES('EXPORT_SCHEMA_VERSION', '3.16.0');
        CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
        INSERT INTO StringIds VALUES(1, 'sgemm'), (2, 'reduce');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, shortName INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(100, 200, 0, 7, 1), (150, 250, 0, 7, 2), (300, 400, 0, 9, 1);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, bytes INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(50, 90, 0, 7, 4096);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INTEGER);
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES(1000000);
    """)
    base.commit()
    base.close()
    found = read_trace(tmp_path / "r.sqlite")
    assert found.types == ("reduce", "sgemm", "copy")
    assert sorted(found.start.tolist()) == [1_000_050, 1_000_100, 1_000_150, 1_000_300]
    assert found.workers == ("gpu0/stream7", "gpu0/stream9", "gpu0/stream7+1"), "concurrent kernels of a stream have lanes"


def test_workers_find_their_domains(tmp_path: Path) -> None:
    one = ran("cholesky", 8, "priority", True, 1).trace

    def meters(*names: str) -> dict[str, Readings]:
        return {name: Readings(name, np.arange(3), np.arange(3.0)) for name in names}

    found = domains_of(one, meters("package-0", "gpu0", "gpu1", "gpu2", "gpu3"))
    assert found["package-0"] == tuple(range(64))
    assert [found[f"gpu{i}"] for i in range(4)] == [(64,), (65,), (66,), (67,)]
    assert set(domains_of(one, meters("package-0", "package-0/dram", "gpu0"))) == {"package-0", "gpu0"}, "parts are never added"
    with pytest.raises(InputError, match="--map"):
        domains_of(one, meters("package-0", "package-1"))
    (tmp_path / "m.csv").write_text("worker,domain\n0,package-0\n1,package-1\n")
    given = read_map(tmp_path / "m.csv")
    assert domains_of(one, meters("package-0", "package-1"), given) == {"package-0": (0,), "package-1": (1,)}
    with pytest.raises(InputError, match='unknown worker "999"'):
        domains_of(one, meters("package-0"), {"999": "package-0"})
    with pytest.raises(InputError, match='unknown domain "dram"'):
        domains_of(one, meters("package-0"), {"0": "dram"})


def test_a_trace_and_readings_of_ones_own_are_answered_in_words(armillary_here: Command, tmp_path: Path) -> None:
    path, options = energy.write_example(tmp_path)
    found = armillary_here("compare", "runtime/energy", "--work", str(path), "--energy", options["energy"], "--repeats", "1")
    assert found.returncode == 0
    said = " ".join(found.stdout.split())
    assert "gemm takes" in said
    assert "W per busy worker (95 %:" in said
    assert "J per call" in said
    assert "isolated: the types of a recorded trace cannot be run alone" in said + found.stderr


def test_half_of_the_blocks_are_held_out(tmp_path: Path) -> None:
    path, options = energy.write_example(tmp_path)
    run = energy.from_file(path, options)[0].at(0, 0).workload.fit[0]
    (learnt, held), (again, other) = folds(run)
    assert set(learnt.intervals.start).isdisjoint(held.intervals.start)
    assert len(learnt.intervals) + len(held.intervals) == len(run.intervals)
    assert learnt.intervals.start.tolist() == other.intervals.start.tolist()
    assert again.observed.energy.tolist() == held.observed.energy.tolist()
    every = np.concatenate((learnt.observed.seconds, held.observed.seconds))
    assert every.sum() == pytest.approx(run.observed.seconds.sum())


def test_counters_declines_a_trace_that_says_no_flops(tmp_path: Path) -> None:
    path, options = energy.write_example(tmp_path)
    rows = [line.split(",")[:4] for line in path.read_text().splitlines()]
    path.write_text("\n".join(map(",".join, rows)) + "\n")
    case = energy.from_file(path, options)[0].at(0, 0)
    assert isinstance(energy.execute(energy.make("counters"), case), NotForThisCase)
    assert not isinstance(energy.execute(energy.make("taskwise"), case), NotForThisCase)


READINGS = "time_s,domain,energy_j\n" + "".join(f"{i / 100},p,{i}\n" for i in range(60))
TASKS = HEAD + "".join(f"{'ab'[i % 2]},0,{i * 10_000_000},{i * 10_000_000 + 6_000_000 + i % 3 * 1_000_000}\n" for i in range(60))


@pytest.mark.parametrize(
    ("name", "trace", "readings", "options", "said"),
    [
        ("t.csv", "name,started,ended\na,0,1\n", READINGS, [], "worker"),
        ("t.csv", HEAD, READINGS, [], "found no rows"),
        ("t.csv", HEAD + "a,0,5,1\n", READINGS, [], 't.csv:2: column "ended"'),
        ("t.csv", HEAD + "a,0,0,100\nb,0,50,200\n", READINGS, [], "while it runs another task"),
        ("t.csv", HEAD + "a,-1,0,100\n", READINGS, [], "no task that ran"),
        ("t.csv", HEAD + "a,0,0,99999999999999999999\n", READINGS, [], 'column "ended"'),
        ("t.csv", TASKS, READINGS, ["--offset", "1000"], "the trace from 1000 to 1000."),
        ("t.csv", TASKS, READINGS, ["--domain", "q"], 'unknown domain "q"'),
        ("t.csv", TASKS, READINGS.replace("energy_j", "joules"), [], "energy_j in joules"),
        ("t.csv", TASKS, READINGS.replace("0.3,p,30", "0.3,p,-30"), [], 'column "energy_j"'),
        ("t.csv", TASKS, READINGS.replace("0.3,p,30\n", "0.3,p,30\n0.3,p,30\n"), [], "not after the last"),
        ("t.csv", TASKS, READINGS.replace("0.31,p,31", "0.31,p,3"), [], "--wrap"),
        ("t.csv", TASKS, "".join(READINGS.splitlines(True)[:5]), [], "expected at least 6"),
        ("t.csv", TASKS, READINGS + READINGS.split("\n", 1)[1].replace(",p,", ",r,"), [], "--map"),
        ("t.rec", "Name: a\nJobId: 1\n", READINGS, [], "no task that ran"),
        ("t.trace", "hello\n", READINGS, [], "expected one that %EventDef defines"),
        ("t.trace", PAJE.replace("10 5.0 w0", "10 3.9 w0"), READINGS, [], "do not decrease"),
        ("t.trace", PAJE.replace("20 1.5 w0 WS gemm 960", "20 1.5 w0"), READINGS, [], "values of PajeSetState"),
        ("t.json", '{"traceEvents": 3}', READINGS, [], "no list of events"),
        ("t.json", '[{"ph": "X", "ts": "x", "dur": 1}]', READINGS, [], "ts: found"),
        ("t.json", '[{"ph": "X", "ts": 1, "dur": -1}]', READINGS, [], "0 or more"),
        ("t.sqlite", "not a database", READINGS, [], "t.sqlite"),
        ("t.log", TASKS, READINGS, [], "found the ending"),
        ("t.nsys-rep", "x", READINGS, [], "nsys export"),
    ],
)  # fmt: skip
def test_wrong_work_is_one_line(
    armillary_here: Command, tmp_path: Path, name: str, trace: str, readings: str, options: list[str], said: str
) -> None:
    (tmp_path / name).write_text(trace)
    (tmp_path / "e.csv").write_text(readings)
    work = ["--work", str(tmp_path / name), "--energy", str(tmp_path / "e.csv")]
    found = armillary_here("compare", "runtime/energy", *work, *options)
    assert found.returncode == 2, found.stdout
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "own.db").exists()


def test_a_trace_without_readings_is_one_line(armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TASKS)
    found = armillary_here("compare", "runtime/energy", "--work", str(tmp_path / "t.csv"))
    assert found.returncode == 2
    assert "--energy" in found.stderr
    assert found.stderr.count("\n") == 1


def test_two_maps_of_one_meter_differ(armillary_here: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TASKS)
    (tmp_path / "e.csv").write_text(READINGS)
    (tmp_path / "m.csv").write_text("worker,domain\n7,p\n")
    work = ["--work", str(tmp_path / "t.csv"), "--energy", str(tmp_path / "e.csv"), "--map", str(tmp_path / "m.csv")]
    found = armillary_here("compare", "runtime/energy", *work)
    assert found.returncode == 2
    assert 'unknown worker "7"' in found.stderr


def test_failed_and_gang_tasks_keep_their_cores() -> None:
    graph = Graph()
    graph.add(None, cost=1.0, needs={"cores": 2}, name="wide")
    graph.add(None, cost=1.0, name="narrow")
    trace = of_run(graph.run(Virtual(3)).trace)
    assert dict(zip((trace.types[t] for t in trace.type), trace.weight.tolist())) == {"wide": 2, "narrow": 1}
