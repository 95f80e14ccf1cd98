#!/usr/bin/env python3
"""Beside Drishti: the same logs, diagnosed by both programs in processes of their own, and by the arena's parts one by one.

    python benchmarks/observability_io.py [--large | --ablation | --forecasts] [LOG.darshan ...]

CPU seconds are those of the processes and their children. Drishti is found beside this Python, on the PATH, or at ARMILLARY_DRISHTI.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from armillary.observability.io import Log, diagnose, predict, write_binary_log
from armillary.observability.io.counters.posix import count_posix
from armillary.observability.io.counters.requests import Requests
from armillary.observability.io.drishti import found_program
from armillary.observability.io.ioagent import IOAgent
from armillary.observability.io.knowledge.entries import built_in
from armillary.observability.io.logs.log import Module, Segments
from armillary.observability.io.logs.modules import COUNTERS, is_float
from armillary.observability.io.synthesis.faults import FAULTS
from armillary.observability.io.synthesis.logs import log_of
from armillary.observability.io.synthesis.planting import TooCheap, planted
from armillary.observability.io.workload import score, shipped

OURS = "import sys; from armillary.observability.io import diagnose, read_log; print(diagnose(read_log(sys.argv[1])).markdown())"
LOGS = ("sample-badost", "example", "shane_macsio_id29959_5-22-32552-7035573431850780836_1590156158", "ior_hdf5_example", "dxt")


def cpu_s() -> float:
    """CPU seconds of this process and of its children that ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def timed(command: list[str], times: int = 3) -> tuple[float, float, int]:
    """(median wall seconds, median CPU seconds, exit status) of a command."""
    found = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), cpu_s()
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command, capture_output=True, cwd=folder, check=False, env={**os.environ, "PYTHONPATH": os.getcwd()})
        found.append((time.perf_counter() - wall, cpu_s() - cpu, done.returncode))
    return float(np.median([one[0] for one in found])), float(np.median([one[1] for one in found])), found[-1][2]


def beside(logs: list[Path]) -> None:
    """Whole programs, from start to end."""
    program = os.environ.get("ARMILLARY_DRISHTI") or found_program()
    print(f"{'log':40} {'ours, s (CPU)':>18} {'drishti, s (CPU)':>20} {'ratio':>12}")
    for log in logs:
        ours = timed([sys.executable, "-c", OURS, str(log)])
        line = f"{log.stem[:40]:40} {ours[0]:9.2f} ({ours[1]:5.2f}) "
        if program:
            theirs = timed([program, "--issues", str(log)])
            crashed = f" (status {theirs[2]})" if theirs[2] else ""
            line += f"{theirs[0]:11.2f} ({theirs[1]:5.2f}) {theirs[0] / ours[0]:5.2f}, {theirs[1] / ours[1]:4.2f}{crashed}"
        print(line, flush=True)


def large(records: int = 100_000, segments: int = 10_000_000) -> None:
    """A log of many records, and many traced requests."""
    rng = np.random.default_rng(0)
    n = records
    counters = {name: np.zeros(n, np.float64 if is_float(name) else np.int64) for name in COUNTERS["POSIX"]}
    counters["POSIX_WRITES"][:] = counters["POSIX_SIZE_WRITE_1M_4M"][:] = rng.integers(1, 100, n)
    counters["POSIX_BYTES_WRITTEN"][:] = counters["POSIX_WRITES"] << 21
    counters["POSIX_F_WRITE_TIME"][:] = rng.random(n)
    ids = rng.integers(1, 1 << 63, n).astype(np.uint64)
    module = Module("POSIX", ids, np.arange(n) % 1000, counters, version=4)
    log = Log(
        "large", "3.41", "app", "1", 1000, 100.0, modules={"POSIX": module}, names={int(one): f"/scratch/{i}" for i, one in enumerate(ids)}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.darshan"
        write_binary_log(log, path)
        wall, cpu, status = timed([sys.executable, "-c", OURS, str(path)], 1)
        print(f"{n:,} records: {wall:.1f} s, {cpu:.1f} CPU s, status {status}, ", end="")
        print(f"at most {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20:.2f} GiB in one process", flush=True)
    m = segments
    ranks, wrote = np.repeat(np.arange(1000), m // 1000), rng.random(m) < 0.5
    offset, length = rng.integers(0, 1 << 40, m), rng.integers(1, 1 << 20, m)
    part = Segments(
        "DXT_POSIX", np.repeat(ids[:1000], m // 1000), ranks, wrote, offset, length, np.arange(m, dtype=float), np.arange(m) + 0.5
    )
    cpu = cpu_s()
    count_posix(Requests.traced(part), 4096)
    print(f"{m:,} traced requests counted in {cpu_s() - cpu:.1f} CPU s")


def ablation() -> None:
    """F1 and first causes of ioagent with one part switched off, over the built-in cases, and how much of its advice applies."""
    from armillary import catalogue

    arena = catalogue.arena("observability/io")
    variants = {
        "ioagent": IOAgent(), "no merge": IOAgent(merge=False), "no explains rules": IOAgent(explains=False),
        "no knowledge filter": IOAgent(filter=False), "no least severity": IOAgent(least_severity=0.0), "rules": arena.make("rules"),
        "rules-weighted": arena.make("rules-weighted"), "totals": arena.make("totals"),
    }  # fmt: skip
    cases = [case.at(0, 0) for case in arena.built_in("small") if "labelled" in case.kinds]
    works = [case.workload for case in cases]
    entries = {one.id: one for one in built_in()}
    for name, technique in variants.items():
        found, advised, fitting = [], 0, 0
        for work in works:
            answers = [(known.truth, technique.answer(known)) for known in work.logs]
            found.append(score([(truth, answer) for truth, answer in answers if truth is not None]))
            given = [(answer.fragments, name) for _, answer in answers for one in answer.findings for name in one.knowledge]
            advised += len(given)
            fitting += sum(entries[one].when.holds(fragments) for fragments, one in given)
        f1, first, right = (np.mean([getattr(one, what) for one in found]) for what in ("f1", "root_cause", "precision"))
        advice = f", {fitting / advised:.0%} of {advised} entries apply" if advised else ""
        print(f"{name:22} F1 {f1:.3f}, cause first {first:.3f}, precision {right:.3f}{advice}", flush=True)


def forecasts(seeds: int = 3) -> None:
    """What the model says that a fix saves, beside what the planted fault costs."""
    for name in FAULTS:
        pairs = []
        for seed, asked in [(seed, asked) for seed in range(seeds) for asked in (0.1, 0.3, 0.6)]:
            rng = np.random.Generator(np.random.PCG64DXSM(1000 + seed))
            try:
                program, truth = planted([name], [asked], 64, rng)
            except TooCheap:
                continue
            label = "small-read" if name == "no-chunking" else min(truth.labels)
            gain = predict(diagnose(log_of(program, name, rng)), (label,))[0].gain
            pairs.append((max(truth.severity.values()), gain))
        costs, gains = np.array(pairs).T if pairs else (np.zeros(0), np.zeros(0))
        if pairs:
            print(
                f"{name:20} costs {costs.mean():.2f}, forecast {gains.mean():.2f}, apart by {np.abs(costs - gains).mean():.3f} on average"
            )


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--forecasts", action="store_true")
    wanted = parser.parse_args()
    folder = shipped()
    logs = wanted.logs or ([] if folder is None else [folder / "examples/example_logs" / f"{name}.darshan" for name in LOGS])
    if wanted.large:
        large()
    elif wanted.ablation:
        ablation()
    elif wanted.forecasts:
        forecasts()
    else:
        beside(logs)


if __name__ == "__main__":
    main()
