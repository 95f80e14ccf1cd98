"""A log of jobs with waits, cut in time: learn from the first 70 %, tune on the next 15 %, judge on the last 15 %."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.queueing.model import model_jobs
from armillary.scheduling.queueing.play import with_waits
from armillary.scheduling.swf import Jobs
from armillary.wording import counted

from .features.sweep import Log

Floats = npt.NDArray[np.float64]
#: Where the log is cut, and the jobs that are needed.
TRAIN, TUNE, FEWEST = 0.70, 0.85, 200
#: The kinds of built-in log.
KINDS = ("estimates", "exact", "shuffled")
#: Loads of the built-in logs of each kind.
LOADS = {"estimates": (0.7, 0.85, 0.95), "exact": (0.85,), "shuffled": (0.85,)}
#: Nodes of the machine whose logs the shipped models were taught on.
TAUGHT_NODES = 256


@dataclass(frozen=True)
class WaitWork:
    """Jobs in queue order, all with known waits, and where they are cut."""

    jobs: Jobs
    #: The kind of built-in logs that learned techniques are taught on; empty where they learn from the log's own first slice.
    taught: str = ""

    def __post_init__(self) -> None:
        n = len(self.jobs)
        if n < FEWEST:
            raise InputError(f"found {counted(n, 'job')} with known waits; expected at least {FEWEST}, to learn and to judge")
        if np.isnan(self.jobs.wait_s).any():
            raise InputError("found jobs without a wait; expected all waits to be known")

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def tune(self) -> int:
        """The first job of the slice on which techniques are tuned and calibrated."""
        return int(TRAIN * len(self))

    @property
    def test(self) -> int:
        """The first job of the slice on which techniques are judged."""
        return int(TUNE * len(self))

    @property
    def log(self) -> Log:
        """The log as the sweep reads it."""
        return Log.of(self.jobs)

    def told(self, first: int, last: int, by: int) -> npt.NDArray[np.int64]:
        """The jobs from number `first` up to `last` whose waits are known when job `by` is submitted."""
        chosen = np.arange(first, last)
        return chosen[self.jobs.start_s[first:last] <= self.jobs.submit_s[by]]


def present(jobs: Jobs, depth: int = 500) -> tuple[Floats, Floats]:
    """(running jobs, queued jobs up to `depth`) at each submission."""
    start, end = np.sort(jobs.start_s), np.sort(jobs.end_s)
    begun, over = np.searchsorted(start, jobs.submit_s), np.searchsorted(end, jobs.submit_s, side="right")
    queued = np.minimum(np.maximum(np.arange(len(jobs)) - begun, 0), depth).astype(float)
    return np.maximum(begun - over, 0).astype(float), queued


def planning_steps(jobs: Jobs, depth: int = 500) -> float:
    """An upper bound on the steps that planning takes at all submissions: planned jobs times the steps of the profile."""
    running, queued = present(jobs, depth)
    return float(((queued + 1.0) * (running + 2.0 * queued + 1.0)).sum())


def built_in(rng: np.random.Generator, kind: str, count: int, nodes: int, load: float, policy: str = "easy") -> Jobs:
    """A log of the batch model of 2003 under a backfilling scheduler.

    kind: "exact" lets users request what they will run; otherwise they request up to 20 times as much, and one in ten the maximum.
    """
    jobs = model_jobs(rng, count, nodes, load)
    if kind == "exact":
        jobs = replace(jobs, requested_s=jobs.run_s.copy())
    return with_waits(jobs, policy)
