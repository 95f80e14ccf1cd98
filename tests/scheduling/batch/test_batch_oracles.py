"""Independent simulators: accasim for first come, first served, and the engine's pools for the shared file system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from armillary.engine import Activity, Pool, Simulation
from armillary.engine.compiled import share
from armillary.scheduling.batch import BatchWork, Easy, EquilibrIO, Fcfs, Played, model_jobs, tidal_work, without_io
from armillary.scheduling.swf import FIELDS, Jobs, Swf
from armillary.streams import stream


def accasim_starts(jobs: Jobs, folder: Path, dispatcher: str = "FirstInFirstOut") -> list[float]:
    """accasim's starts of the same jobs on single-core nodes; it needs a requested memory of at least 1."""
    swf = Swf.of(jobs)
    for name in ("memory", "requested_memory", "status", "user"):
        swf.rows[:, FIELDS.index(name)] = 1
    (folder / "work.swf").write_text(swf.text())
    script = Path(__file__).with_name("batch_accasim.py")
    environment = {**os.environ, "TZ": "UTC"}
    command = [sys.executable, str(script), str(folder), str(jobs.machine_nodes), dispatcher]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    found = json.loads((folder / "starts.json").read_text())
    return [found[str(job)] for job in jobs.job.tolist()]


@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_fcfs_starts_every_job_when_accasim_does(tmp_path: Path, count: int) -> None:
    pytest.importorskip("accasim")
    jobs = model_jobs(stream(3, "accasim"), count, 64)
    ours = Fcfs().play(without_io(jobs))
    assert ours.wait_s.max() > 0
    assert ours.start_s.tolist() == accasim_starts(jobs, tmp_path)


@pytest.mark.slow
def test_accasims_easy_is_no_oracle_because_it_delays_the_first_blocked_job(tmp_path: Path) -> None:
    """Its variant lets jobs backfill beyond the reserved time, so its waits are shorter than EASY's rule allows."""
    pytest.importorskip("accasim")
    jobs = model_jobs(stream(3, "accasim"), 1000, 64)
    jobs = replace(jobs, requested_s=jobs.run_s.copy())
    start = np.array(accasim_starts(jobs, tmp_path, "EASYBackfilling"))
    theirs = SimpleNamespace(start_s=start, end_s=start + jobs.run_s)
    assert delayed_heads(jobs, theirs) > 0
    assert delayed_heads(jobs, Easy().play(without_io(jobs))) == 0


def delayed_heads(jobs: Jobs, played: Any) -> int:
    """Jobs that start later than they were promised when they became the oldest queued job."""
    late = 0
    for i in range(len(jobs)):
        since = max([float(jobs.submit_s[i]), *map(float, played.start_s[:i])])
        if since < played.start_s[i]:
            rows = zip(played.start_s, played.end_s, jobs.requested_s, jobs.nodes, strict=True)
            held = [(float(s + r), int(n)) for s, e, r, n in rows if s <= since < e]
            free = jobs.machine_nodes - sum(n for _, n in held)
            promised = min(end for end, _ in held if free + sum(n for e, n in held if e <= end) >= jobs.nodes[i])
            late += bool(played.start_s[i] > promised)
    return late


def ends_in_the_engine(work: BatchWork, played: Played) -> list[float]:
    """When each job ends if it starts as it was played and its I/O phases share one of the engine's pools."""
    ends = [0.0] * len(work)
    with Simulation() as sim:
        pool = Pool(sim, work.capacity)

        def job(i: int) -> Generator[Any, Any, None]:
            count = int(work.phases[i])
            segment = float((1 - work.duty[i]) * work.jobs.run_s[i]) / (count + 1)
            yield sim.timeout(float(played.start_s[i]))
            for _ in range(count):
                yield sim.timeout(segment)
                volume = float(work.volume[i]) / count
                yield Activity(sim, volume, pool, weight=float(work.jobs.nodes[i]), cap=float(work.bandwidth[i]))
            yield sim.timeout(segment)
            ends[i] = sim.now

        for i in range(len(work)):
            sim.process(job(i))
        sim.run()
    return ends


@pytest.mark.parametrize("policy", [Easy(), EquilibrIO(fairness=0.0)], ids=["easy", "eager"])
def test_every_end_is_that_of_the_engines_pools(policy: Any) -> None:
    rng = stream(1, "engine")
    work = tidal_work(rng, model_jobs(rng, 150, 64), 12.5e9, 0.4)
    played = policy.play(work)
    assert played.io_slowdown > 0.01
    assert played.end_s == pytest.approx(ends_in_the_engine(work, played), rel=1e-9)
    assert played.moved.sum() == pytest.approx(work.volume.sum(), rel=1e-9)


def test_three_phases_share_by_weight_up_to_their_caps() -> None:
    assert share(8.0, np.array([1.0, 1.0, 2.0]), np.array([1.0, 4.0, 8.0])) == pytest.approx([1, 7 / 3, 14 / 3])
    # The same in the simulator: pure I/O of one second each at the rate of its cap.
    jobs = Jobs.of([0, 0, 0], [1, 1, 1], [1, 1, 2], machine_nodes=4)
    cap, one = np.array([1.0, 4.0, 8.0]), np.ones(3)
    played = Fcfs().play(BatchWork(jobs, one, cap, np.ones(3, np.int64), one, cap, 8.0))
    # Job 1 ends at 1 s; the others then have 7/3 of 4 and 14/3 of 8 bytes behind them, and share 8 by 1 : 2.
    assert played.end_s[0] == pytest.approx(1.0)
    assert played.end_s[2] == pytest.approx(1 + (8 - 14 / 3) / (16 / 3))
    assert played.end_s[1] == pytest.approx(played.end_s[2] + (4 - 7 / 3 - (8 / 3) * (played.end_s[2] - 1)) / 4)
