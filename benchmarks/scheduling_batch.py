"""How fast the simulator of scheduling/batch is, and how near its file system is to real processes.

python benchmarks/scheduling_batch.py prints jobs per second of first come, first served beside accasim's on the same log in one run (goal:
at least 200 times as many); seconds of 200,000 jobs on 4,096 nodes under every policy, without I/O (goal for EASY: 60 s) and with it (goal:
300 s), and the peak memory (goal: 2 GiB); what false knowledge costs beside EASY (goal: at most 5 % in turnaround); and, with --processes,
the I/O slowdown of 8 jobs as real processes beside the simulated one (goal: within 15 %). Last, one JSON object.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from armillary.scheduling.batch import (
    BandwidthLicense,
    BatchWork,
    Conservative,
    Easy,
    EquilibrIO,
    EquilibrIOEager,
    Fcfs,
    PeakLicense,
    Policy,
    SjfEasy,
    model_jobs,
    replay,
    tidal_work,
    without_io,
)
from armillary.scheduling.batch.simulation.replay import metrics
from armillary.scheduling.swf import FIELDS, Jobs, Swf
from armillary.streams import stream

LINK = 12.5e9
POLICIES: dict[str, Policy] = {
    "fcfs": Fcfs(), "easy": Easy(), "conservative": Conservative(), "sjf-easy": SjfEasy(), "bandwidth-license": BandwidthLicense(),
    "peak-license": PeakLicense(), "equilibrio": EquilibrIO(), "equilibrio-eager": EquilibrIOEager(),
}  # fmt: skip


def cpu_s(call: Any) -> tuple[float, Any]:
    """CPU seconds of a call, and what it returned."""
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def accasim_s(jobs: Jobs) -> float:
    """CPU seconds of accasim's first-in-first-out dispatcher on the same jobs; its own results are written as it always does."""
    for name in ("Mapping", "MutableMapping", "Iterable", "Sequence", "Callable", "Set"):
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    from accasim.base.allocator_class import FirstFit  # type: ignore[import-untyped]
    from accasim.base.scheduler_class import FirstInFirstOut  # type: ignore[import-untyped]
    from accasim.base.simulator_class import Simulator  # type: ignore[import-untyped]

    swf = Swf.of(jobs)
    for name in ("memory", "requested_memory", "status", "user"):
        swf.rows[:, FIELDS.index(name)] = 1
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "work.swf").write_text(swf.text())
        system = {"groups": {"g0": {"core": 1, "mem": 1_000_000}}, "resources": {"g0": jobs.machine_nodes}}
        (folder / "system.json").write_text(json.dumps({**system, "equivalence": {"processor": {"core": 1}}, "start_time": 0}))
        simulator = Simulator(
            str(folder / "work.swf"), str(folder / "system.json"), FirstInFirstOut(FirstFit()), statistics_output=False,
            show_statistics=False, RESULTS_FOLDER_PATH=str(folder / "results"), LOG_LEVEL="ERROR",
        )  # fmt: skip
        return cpu_s(simulator.start_simulation)[0]


def beside_accasim(count: int = 2000, nodes: int = 256) -> dict[str, float]:
    """Jobs per CPU second of both."""
    jobs = model_jobs(stream(0, "benchmark"), count, nodes)
    work = without_io(jobs)
    Fcfs().play(work)
    ours = statistics.median(cpu_s(lambda: Fcfs().play(work))[0] for _ in range(9))
    theirs = accasim_s(jobs)
    return {"ours_jobs_per_s": count / ours, "accasim_jobs_per_s": count / theirs, "ratio": theirs / ours}


def large(count: int = 200_000, nodes: int = 4096) -> dict[str, dict[str, float]]:
    """CPU seconds of every policy on a large log, without I/O and with it."""
    rng = stream(1, "benchmark")
    jobs = model_jobs(rng, count, nodes)
    tidal = tidal_work(rng, jobs, LINK, 0.4)
    return {
        name: {"without I/O": cpu_s(lambda p=p: p.play(without_io(jobs)))[0], "with I/O": cpu_s(lambda p=p: p.play(tidal))[0]}  # type: ignore[misc]
        for name, p in POLICIES.items()
    }


def misfit(draws: int = 5) -> dict[str, dict[str, float]]:
    """Turnaround and I/O slowdown beside EASY's (ratios, medians over draws) where knowledge is false."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in POLICIES}
    for draw in range(draws):
        rng = stream(2, "benchmark", str(draw))
        work = tidal_work(rng, model_jobs(rng, 3000, 256), LINK, 0.4).knowing("false", rng)
        plain = metrics(Easy().play(work))
        for name, policy in POLICIES.items():
            got = metrics(policy.play(work))
            found[name].append((got["turnaround_mean_s"] / plain["turnaround_mean_s"], got["io_slowdown"] / plain["io_slowdown"]))
    medians = {name: np.median(np.array(values), axis=0) for name, values in found.items()}
    return {name: {"turnaround": float(a), "io_slowdown": float(b)} for name, (a, b) in medians.items()}


def real() -> dict[str, float]:
    """I/O slowdown of eight jobs as processes and in the simulator."""
    jobs = Jobs.of(np.zeros(8), 6.0 + 0.5 * np.arange(8), [1, 1, 2, 2, 1, 1, 2, 2], machine_nodes=12)
    duty, capacity = np.array([0.5, 0.3, 0.6, 0.2, 0.5, 0.4, 0.3, 0.6]), 2e6
    c = np.minimum(jobs.nodes * 0.5 * capacity, capacity)
    found = replay(BatchWork(jobs, duty, c, np.array([2, 1, 3, 1, 2, 2, 1, 3]), duty, c, capacity))
    return {"measured": found.measured, "simulated": found.simulated, "apart": found.measured / found.simulated - 1}


def main() -> None:
    """Prints every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", action="store_true", help="run eight jobs as real processes too (half a minute)")
    wanted = parser.parse_args()
    found: dict[str, Any] = {"accasim": beside_accasim()}
    a = found["accasim"]
    print(f"FCFS: {a['ours_jobs_per_s']:,.0f} jobs per CPU second; accasim {a['accasim_jobs_per_s']:,.0f}; {a['ratio']:,.0f} times as fast")
    found["large_s"] = large()
    for name, seconds in found["large_s"].items():
        print(f"200,000 jobs, {name:18} {seconds['without I/O']:7.2f} s without I/O {seconds['with I/O']:8.2f} s with I/O")
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {found['peak_mib']:.0f} MiB")
    found["misfit"] = misfit()
    for name, ratio in found["misfit"].items():
        print(f"false knowledge, {name:18} turnaround {ratio['turnaround']:6.2f} × easy, I/O slowdown {ratio['io_slowdown']:6.2f} × easy")
    if wanted.processes:
        found["processes"] = real()
        r = found["processes"]
        print(f"real processes: I/O slowdown {r['measured']:.3f}, simulated {r['simulated']:.3f} ({100 * r['apart']:+.1f} %)")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
