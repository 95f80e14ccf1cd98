#!/usr/bin/env python3
"""Beside nsys2prv and HolisticTraceAnalysis, on a large export, and part by part.

    python benchmarks/observability_traces.py [--beside | --breakdown | --gib SIZE | --devices NUMBER | --ablation]

nsys2prv is found beside this Python, on the PATH, or at ARMILLARY_NSYS2PRV. ARMILLARY_HTA names a Python in which HolisticTraceAnalysis is
installed. Everything is made in temporary folders, which are removed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from armillary.observability.traces import Breakdown, Nsys2prv, peer, read_run
from armillary.observability.traces.synthesis.exports import Clock, write_exports
from armillary.observability.traces.synthesis.kineto_json import write_traces
from armillary.observability.traces.synthesis.programs import Design, simulated
from armillary.observability.traces.workload import clocks_of

CONVERT = "import sys; from armillary import cli; sys.argv = ['armillary', 'traces', 'convert', *sys.argv[1:]]; cli.main()"
THEIRS = """
import json, sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_dir=sys.argv[1]).get_temporal_breakdown(visualize=False)
print("FOUND", found.to_json(orient="records"))
"""


def timed(*arguments: str) -> tuple[float, float, float]:
    """(wall seconds, CPU seconds, GiB at most) of a conversion in a process of its own."""
    begin = time.perf_counter()
    surroundings = {**os.environ, "PYTHONPATH": os.getcwd()}
    process = subprocess.Popen([sys.executable, "-c", CONVERT, *arguments], stdout=subprocess.DEVNULL, env=surroundings)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.returncode
    return time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def beside(kernels: int = 50_000) -> None:
    """Exports of few and of many kernels and calls, converted by both programs; the difference leaves their starts out."""
    program = peer.found_program()
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "nsys2prv": []}
    for many in (100, kernels):
        with tempfile.TemporaryDirectory() as folder:
            room = Path(folder)
            [export] = write_exports(simulated(Design(ranks=1, iterations=10, kernels=many // 10), 1), room, [Clock()])
            timed(str(export), "--paraver", str(room / "warm"))
            ours = [timed(str(export), "--paraver", str(room / "ours")) for _ in range(5)]
            found["ours"].append((float(np.median([one[0] for one in ours])), float(np.median([one[1] for one in ours]))))
            if program is not None:
                (own := room / "theirs").mkdir()
                peer.prepare(export, own)
                before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                peer.convert(program, own)
                wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
                found["nsys2prv"].append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        for name, rows in found.items():
            if rows:
                print(f"{many:,} kernels and calls: {name} {rows[-1][0]:.2f} s ({rows[-1][1]:.2f} CPU s)", flush=True)
    if program is not None:
        whole = [theirs / ours for ours, theirs in zip(found["ours"][1], found["nsys2prv"][1])]
        spent = {name: [many - few for few, many in zip(*rows)] for name, rows in found.items()}
        net = [theirs / ours for ours, theirs in zip(spent["ours"], spent["nsys2prv"])]
        print(f"nsys2prv takes {whole[0]:.1f} times as long ({whole[1]:.1f} times the CPU seconds)")
        print(f"without the starts of both it takes {net[1]:.1f} times the CPU seconds")


def breakdown() -> None:
    """Idle, compute and other time per device as HolisticTraceAnalysis says it, beside ours, in percent of the elapsed time."""
    python = os.environ.get("ARMILLARY_HTA")
    # The peer cuts times down to whole microseconds, so kernels are long here.
    design = Design(
        ranks=4, iterations=6, kernels=60, kernel_ns=400e3, transfers=3e6, host=4e6, overlapped_communication=2e6, streams=2, imbalance=0.2,
        patient=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        write_traces(simulated(design, 1), Path(folder), clocks_of(4, np.random.default_rng(1)), packed=True)
        run = read_run(folder, align=False)
        if python is None:
            print("ARMILLARY_HTA names no Python with HolisticTraceAnalysis")
            return
        said = subprocess.run([python, "-c", THEIRS, folder], capture_output=True, text=True, check=True).stdout
        theirs = json.loads(next(line for line in said.splitlines() if line.startswith("FOUND"))[6:])
        worst = 0.0
        for row in sorted(theirs, key=lambda one: one["rank"]):
            # It takes each rank's own time from its first to its last activity.
            table = Breakdown().table(one_device(run, row["rank"]))
            ours = [100 * float(table[name][0]) for name in ("compute", "host wait", "kernel wait", "other wait")]
            pair = (ours[0], sum(ours[1:])), (row["compute_time_pctg"], row["idle_time_pctg"])
            worst = max(worst, *(abs(a - b) for a, b in zip(*pair)))
            print(f"rank {row['rank']}: compute {pair[0][0]:.2f} and {pair[1][0]:.2f} %, idle {pair[0][1]:.2f} and {pair[1][1]:.2f} %")
        print(f"apart by at most {worst:.2f} points")


def one_device(run, number):  # type: ignore[no-untyped-def]
    """The part of a run that one process did."""
    from dataclasses import replace

    owner = run.process_of_thread()
    return replace(
        run, spans={kind: one.of(owner[one.thread] == number) for kind, one in run.spans.items()}, processes=run.processes,
        threads=tuple(one if one.process == number else replace(one, device=-1) for one in run.threads),
    )  # fmt: skip


def large_export(path: Path, gib: float) -> int:
    """Writes an export of about this size, in which a part of a program repeats; returns its rows."""
    design = Design(ranks=1, iterations=20, kernels=500, overlapped_copies=2e5, overlapped_communication=1e5, streams=2, patient=True)
    program = simulated(design, 1)
    [written] = write_exports(program, path.parent, [Clock()])
    written.rename(path)
    connection = sqlite3.connect(path)
    for statement in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -50000"):
        connection.execute(f"PRAGMA {statement}")
    copies, rows = max(2, int(gib * 2**30 / path.stat().st_size)), 0
    moved = {
        "start": f"start + k * {program.elapsed + 1_000_000}", "end": f"end + k * {program.elapsed + 1_000_000}",
        "correlationId": f"correlationId + k * {len(program.operation)}",
    }  # fmt: skip
    for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "NVTX_EVENTS"):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        chosen = ", ".join(moved.get(name, name) for name in columns)
        connection.execute(f"CREATE TEMP TABLE one AS SELECT * FROM {table}")
        numbers = f"WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < {copies - 1})"
        connection.execute(f"{numbers} INSERT INTO {table} SELECT {chosen} FROM n, one")
        connection.execute("DROP TABLE one")
        rows += connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.commit()
    connection.close()
    return rows


def large(gib: float) -> None:
    """One large export to Paraver and to Perfetto, each in a process of its own, and both read back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.sqlite"
        rows = large_export(path, gib)
        print(f"{path.stat().st_size / 2**30:.2f} GiB, {rows:,} rows", flush=True)
        for what, target in (("Paraver", "--paraver"), ("Perfetto", "--perfetto")):
            out = Path(folder) / ("out.prv" if what == "Paraver" else "out.json.gz")
            wall, cpu, most = timed(str(path), target, str(out))
            size = sum(one.stat().st_size for one in Path(folder).glob(f"{out.name.split('.')[0]}.*"))
            print(f"{what}: {wall:.1f} s ({cpu:.1f} CPU s), {most:.2f} GiB of memory, {size / 2**30:.2f} GiB written", flush=True)
            for one in Path(folder).glob("out.*"):
                one.unlink()


def devices(number: int, events: int) -> None:
    """A run of many devices, one export each, merged, aligned and converted."""
    iterations = max(2, events // (number * 244))
    with tempfile.TemporaryDirectory() as folder:
        design = Design(ranks=number, iterations=iterations, kernels=120, patient=True)
        program = simulated(design, 1)
        begin = time.perf_counter()
        (room := Path(folder) / "reports").mkdir()
        write_exports(program, room, clocks_of(number, np.random.default_rng(1)), per_node=8)
        size, many = sum(one.stat().st_size for one in room.iterdir()), program.events
        print(f"{number:,} exports with {many:,} events, {size / 2**30:.2f} GiB, made in {time.perf_counter() - begin:.0f} s", flush=True)
        del program
        wall, cpu, most = timed(str(room), "--paraver", f"{folder}/out")
        print(f"{wall:.1f} s ({cpu:.1f} CPU s, {many / cpu:,.0f} events/s), {most:.2f} GiB, {most * 2**30 / many:.0f} B per event")


def ablation() -> None:
    """Mean error and causes found of nsys2prv with one part switched off, over the planted cases."""
    from armillary import catalogue
    from armillary.observability.traces.workload import errors

    works = [case.at(0, 0).workload for case in catalogue.arena("observability/traces").built_in("small") if "planted" in case.kinds]
    variants = {
        "nsys2prv": Nsys2prv(), "no alignment": Nsys2prv(align=False), "no NCCL split": Nsys2prv(split_nccl=False),
        "sums for unions": Nsys2prv(unions=False),
    }  # fmt: skip
    for name, technique in variants.items():
        found = [(technique.attribute(work.run), work.truth) for work in works]
        off = [np.mean(list(errors(one.shares, truth.shares).values())) for one, truth in found]
        right = np.mean([one.main == truth.main for one, truth in found])
        print(f"{name:16} error {np.mean(off):.2f} points (at most {max(off):.2f}), cause found {right:.3f}", flush=True)


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--breakdown", action="store_true")
    parser.add_argument("--gib", type=float)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--ablation", action="store_true")
    wanted = parser.parse_args()
    if wanted.gib:
        large(wanted.gib)
    elif wanted.devices:
        devices(wanted.devices, wanted.events)
    elif wanted.ablation:
        ablation()
    elif wanted.breakdown:
        breakdown()
    else:
        beside()


if __name__ == "__main__":
    main()
