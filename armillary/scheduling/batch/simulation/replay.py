"""Plays batch work under a policy, and says what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.engine.compiled import heap
from armillary.scheduling.batch.workload import BatchWork
from armillary.scheduling.queueing.profile import profile
from armillary.scheduling.queueing.state import DECISIONS, fresh
from armillary.timing import Stopwatch

from .loop import Truth, room, run
from .policy import BANDWIDTH_LICENSE, CONSERVATIVE, Settings

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]
#: Runs shorter than this count as this long in the bounded slowdown.
BOUND_S = 10.0


@dataclass(frozen=True)
class Played:
    """What happened to each job, in queue order: seconds on the clock of `submit_s`."""

    work: BatchWork
    start_s: Floats
    end_s: Floats
    #: Seconds in I/O phases, and bytes moved.
    io_s: Floats
    moved: Floats
    #: Older jobs queued / all others queued at the start of each job.
    passed: Floats
    #: The contention that EquilibrIO expected each job to add (Δ), and the duty that it was told; 0 for other policies.
    delta: Floats
    known_duty: Floats
    #: How often the policy decided, and the seconds of this machine that the whole simulation took.
    decisions: int
    seconds: float

    @property
    def wait_s(self) -> Floats:
        """Seconds between submission and start."""
        return self.start_s - self.work.jobs.submit_s

    @property
    def io_slowdown(self) -> float:
        """Σ I/O time in the run / Σ I/O time alone - 1; 0 without I/O."""
        alone = self._alone
        return float(self.io_s.sum()) / alone - 1.0 if alone > 0 else 0.0

    @property
    def _alone(self) -> float:
        """Seconds in which the bytes that were moved would have been moved alone; less than in the work if jobs were killed."""
        cap = np.where(self.work.bandwidth > 0, self.work.bandwidth, 1.0)
        return float((self.moved / cap).sum())

    @property
    def promised_stretch(self) -> float:
        """Σ I/O time that the policy expected / Σ I/O time alone, by what it was told: 1 + Σ Δ·run / Σ ι·run; 1 if it expects nothing."""
        alone = float((self.known_duty * self.work.jobs.run_s).sum())
        return 1.0 + float((self.delta * self.work.jobs.run_s).sum()) / alone if alone > 0 else 1.0

    def frame(self) -> pl.DataFrame:
        """One row per job: what it asked for, when it ran, and its I/O."""
        import polars as pl

        jobs = self.work.jobs
        return pl.DataFrame(
            {
                "job": jobs.job, "submit_s": jobs.submit_s, "start_s": self.start_s, "end_s": self.end_s, "wait_s": self.wait_s,
                "nodes": jobs.nodes, "requested_s": jobs.requested_s, "run_s": jobs.run_s, "io_alone_s": self.work.io_s,
                "io_s": self.io_s,
            }
        )  # fmt: skip


def play(work: BatchWork, settings: Settings) -> Played:
    """Simulates all jobs under a policy's kernel."""
    jobs = work.jobs
    n = len(jobs)
    first = float(jobs.submit_s[0]) if n else 0.0
    # Times count from the first submission, so that a log's epoch does not cost precision.
    state = fresh(
        jobs.submit_s - first, jobs.requested_s, jobs.nodes, work.told_duty, work.told_bandwidth, jobs.machine_nodes, work.capacity
    )  # fmt: skip
    phases = np.where(work.volume > 0, work.phases, 0)
    count = np.maximum(phases, 1)
    computing = np.where(phases > 0, (1.0 - work.duty) * jobs.run_s / (phases + 1), jobs.run_s)
    programs, program = np.unique(np.stack([jobs.user, jobs.executable]), axis=1, return_inverse=True)
    truth = Truth(computing, phases, work.volume / count, work.bandwidth, program.reshape(-1))
    record, flows = room(n, min(n, jobs.machine_nodes), programs.shape[1])
    events = heap(2 * n + 2)
    steps = profile(state, min(settings.window, n + 1) if settings.kernel == CONSERVATIVE else 1)
    history = settings.history if work.learned and settings.kernel >= BANDWIDTH_LICENSE else 0
    with Stopwatch() as watch:
        whole = run(
            state, truth, record, flows, events, steps, settings.kernel, min(settings.window, n + 1), np.array([*settings.numbers, 0.0]),
            history, work.kill_at_limit,
        )  # fmt: skip
    if not whole or np.isnan(record.end).any():
        raise RuntimeError("the simulation lost an event")
    return Played(
        work, record.start + first, record.end + first, record.io, record.moved, state.passed, state.delta, state.duty,
        int(state.counts[DECISIONS]), watch.seconds,
    )  # fmt: skip


def metrics(played: Played) -> dict[str, float]:
    """The arena's metrics of one run."""
    jobs = played.work.jobs
    n = len(jobs)
    held = played.end_s - played.start_s
    turnaround = played.end_s - jobs.submit_s
    makespan = float(played.end_s.max() - jobs.submit_s[0]) if n else 0.0
    slowdown = np.maximum(turnaround / np.maximum(jobs.run_s, BOUND_S), 1.0)
    # A second of rounding apart from the limit is no overrun.
    over = (held > jobs.requested_s * (1 + 1e-9)) & (jobs.run_s <= jobs.requested_s)
    delivered = 1.0 + played.io_slowdown
    return {
        "io_slowdown": max(played.io_slowdown, 0.0),
        "turnaround_mean_s": float(turnaround.mean()),
        "wait_mean_s": float(played.wait_s.mean()),
        "wait_p95_s": float(np.quantile(played.wait_s, 0.95)),
        "bounded_slowdown": float(slowdown.mean()),
        "makespan_s": makespan,
        "node_utilisation": float((jobs.nodes * held).sum()) / (jobs.machine_nodes * makespan) if makespan > 0 else 0.0,
        "fairness": 1.0 - float(played.passed.mean()),
        "overruns": float(np.count_nonzero(over)),
        "promise_error": abs(played.promised_stretch - delivered) / delivered,
        "decisions_per_s": played.decisions / max(played.seconds, 1e-9) if not math.isnan(played.seconds) else 0.0,
    }
