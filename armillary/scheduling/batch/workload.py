"""Batch work: jobs, the machine that they run on, what they really do, and what a scheduler is told about it.

Built-in jobs follow the batch model of Lublin and Feitelson (The workload on parallel supercomputers: modeling the characteristics of
rigid jobs, JPDC 2003) with its published constants. I/O is ours: each user has a few executables, some of which are data-intensive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.queueing.model import model_jobs as model_jobs
from armillary.scheduling.swf import Jobs

if TYPE_CHECKING:
    from armillary.cluster import Cluster

    from .knowledge.history import JobIo

Floats = npt.NDArray[np.float64]

#: Duty of data-intensive executables (0.8 · Beta), the share of node-seconds that they hold, and the duty of the others.
DUTY_SCALE, DUTY_BETA, INTENSIVE, LIGHT_DUTY, VARIATION = 0.8, (2.0, 3.0), 0.30, 0.02, 0.2
#: Seconds of a run per I/O phase, and the phases that one simulation may have.
PHASE_S, MOST_PHASES = 1800.0, 5_000_000
#: The file system is at least as fast as this many links.
LEAST_LINKS = 4
KNOWLEDGE = ("told", "history", "quarter-random", "quarter-heaviest", "false", "none")


@dataclass(frozen=True)
class BatchWork:
    """Jobs with their I/O on one machine. Arrays have one entry per job, in queue order."""

    jobs: Jobs
    #: The share of the isolated run in I/O (ι), bytes per second unthrottled (c, at most the capacity), and the number of I/O phases.
    duty: Floats
    bandwidth: Floats
    phases: npt.NDArray[np.int64]
    #: What a policy is told before a job runs; ι = 0 is unknown.
    told_duty: Floats
    told_bandwidth: Floats
    #: Bytes per second of the file system; infinite where nobody contends.
    capacity: float = math.inf
    #: Whether what is told is learned from ended runs instead.
    learned: bool = False
    #: Whether a job ends at its requested time.
    kill_at_limit: bool = False

    def __post_init__(self) -> None:
        n = len(self.jobs)
        for name in ("duty", "bandwidth", "phases", "told_duty", "told_bandwidth"):
            values = getattr(self, name)
            if len(values) != n or not (np.isfinite(values).all() and (values >= 0).all()):
                raise InputError(f"found {name} that is negative, not finite or of another length; expected {n} numbers of 0 or more")
        if not self.capacity > 0.0:
            raise InputError(f"found {self.capacity}; expected bytes per second above 0", where="capacity")
        if (self.duty > 1).any() or (self.told_duty > 1).any():
            raise InputError("found ι above 1; expected a share of the run")
        if ((self.duty > 0) & ((self.bandwidth <= 0) | (self.bandwidth > self.capacity) | (self.phases < 1))).any():
            raise InputError("found I/O without phases or bandwidth, or beyond the capacity; expected c from above 0 up to the capacity")
        if (total := int(self.phases.sum())) > MOST_PHASES:
            raise InputError(f"found {total:,} I/O phases; expected at most {MOST_PHASES:,}")

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def io_s(self) -> Floats:
        """Seconds that each job spends in I/O when it is alone."""
        return self.duty * self.jobs.run_s

    @property
    def volume(self) -> Floats:
        """Bytes that each job moves."""
        return self.io_s * self.bandwidth

    @property
    def load(self) -> float:
        """Mean utilisation of the file system over the submissions: Σ ι·run·c / (T·B)."""
        span = float(self.jobs.submit_s[-1] - self.jobs.submit_s[0]) if len(self) else 0.0
        return float(self.volume.sum()) / (span * self.capacity) if span > 0 and self.capacity < math.inf else 0.0

    def knowing(self, what: str, rng: np.random.Generator | None = None) -> BatchWork:
        """The same work with other knowledge: one of `KNOWLEDGE`. The random ones need `rng`."""
        if what not in KNOWLEDGE:
            raise InputError(f'found "{what}"; expected one of {", ".join(KNOWLEDGE)}', where="knowledge")
        n, duty = len(self), self.duty
        if what == "quarter-heaviest":
            told = np.zeros(n, bool)
            told[np.argsort(-self.volume, kind="stable")[: n // 4]] = True
            duty = np.where(told, duty, 0.0)
        elif what in ("quarter-random", "false"):
            order = (np.random.default_rng(0) if rng is None else rng).permutation(n)
            if what == "false":
                duty = duty[order]
            else:
                told = np.zeros(n, bool)
                told[order[: n // 4]] = True
                duty = np.where(told, duty, 0.0)
        elif what in ("none", "history"):
            duty = np.zeros(n)
        return replace(self, told_duty=duty, told_bandwidth=self.bandwidth.copy(), learned=what == "history")


def without_io(jobs: Jobs, *, kill_at_limit: bool = False) -> BatchWork:
    """Jobs that only compute."""
    zero = np.zeros(len(jobs))
    return BatchWork(jobs, zero, zero, np.zeros(len(jobs), np.int64), zero, zero, kill_at_limit=kill_at_limit)


def with_io(jobs: Jobs, io: JobIo, capacity: float, *, kill_at_limit: bool = False) -> BatchWork:
    """Jobs with what is known about their I/O; the others only compute.

    A job that moved bytes faster than the capacity is played at the capacity, for the I/O time that it had.
    """
    if not 0.0 < capacity < math.inf:
        raise InputError(f"found {capacity}; expected the bytes per second of the file system", where="capacity")
    duty, bandwidth, phases = io.of(jobs)
    bandwidth = np.minimum(bandwidth, capacity)
    return BatchWork(jobs, duty, bandwidth, phases, duty, bandwidth, capacity, kill_at_limit=kill_at_limit)


def phases_of(run_s: Floats, duty: Floats) -> npt.NDArray[np.int64]:
    """I/O phases of each job: one per half hour of its run, at least one, none without I/O."""
    count = np.maximum(1, np.round(run_s / PHASE_S)).astype(np.int64)
    return np.where(duty * run_s > 0, count, 0)


def link_of(cluster: Cluster) -> tuple[int, float]:
    """(nodes, bytes per second of one node's NICs) of the first group of a cluster that has a network."""
    for group in cluster.groups:
        rate = sum(float(nic.count) * float(nic.up) for nic in group.node.nics if nic.up is not None)
        if rate > 0:
            return int(group.count), rate
    raise InputError(f"{cluster.name}: expected nodes with a NIC of known rate", where="cluster")


def tidal_io(rng: np.random.Generator, jobs: Jobs, link: float, target: float) -> BatchWork:
    """Jobs with built-in I/O: the capacity is set so that the file system's mean utilisation is `target`.

    Executables in random order are data-intensive until they hold 30 % of the node-seconds; a run's own ι varies by 20 % either way.
    link: bytes per second of one node.
    """
    programs, program = np.unique(np.stack([jobs.user, jobs.executable]), axis=1, return_inverse=True)
    program = program.reshape(-1)
    held = np.bincount(program, jobs.nodes * jobs.run_s, programs.shape[1])
    order = rng.permutation(len(held))
    before = np.concatenate([[0.0], np.cumsum(held[order])[:-1]])
    heavy = np.zeros(len(held), bool)
    heavy[order] = before < INTENSIVE * held.sum()
    duty = np.where(heavy, DUTY_SCALE * rng.beta(*DUTY_BETA, len(held)), rng.uniform(0.0, LIGHT_DUTY, len(held)))
    own = np.minimum(duty[program] * rng.uniform(1 - VARIATION, 1 + VARIATION, len(jobs)), 1.0)
    own = np.where(jobs.run_s > 0, own, 0.0)
    capacity = _capacity(jobs, own, link, target)
    bandwidth = np.minimum(jobs.nodes * link, capacity)
    return BatchWork(jobs, own, bandwidth, phases_of(jobs.run_s, own), own, bandwidth.copy(), capacity)


def tidal_work(rng: np.random.Generator, jobs: Jobs, link: float, target: float, tries: int = 100) -> BatchWork:
    """`tidal_io`, drawn again until the target is in reach, which it is not where few executables do much I/O at a time."""
    for left in range(tries, 0, -1):
        try:
            return tidal_io(rng, jobs, link, target)
        except InputError:
            if left == 1:
                raise
    raise AssertionError


def _capacity(jobs: Jobs, duty: Floats, link: float, target: float) -> float:
    """The capacity B at which Σ ι·run·min(nodes·link, B) / (T·B) is `target`, by bisection."""
    span = float(jobs.submit_s[-1] - jobs.submit_s[0]) if len(jobs) else 0.0
    seconds = duty * jobs.run_s
    if span <= 0 or seconds.sum() / span <= target:
        reach = seconds.sum() / span if span > 0 else 0.0
        raise InputError(f"found jobs whose I/O fills a file system to at most {reach:.3g}; expected more than the target {target:g}")
    # Jobs of one size move bytes at one rate. Exact sums, so that the capacity does not depend on the processor.
    sizes, place = np.unique(jobs.nodes, return_inverse=True)
    by_size = np.bincount(place, seconds)
    low, high = link, float(link * jobs.machine_nodes * len(jobs))
    for _ in range(200):
        middle = (low + high) / 2
        if math.fsum(by_size * np.minimum(sizes * link, middle)) > target * span * middle:
            low = middle
        else:
            high = middle
    if high < LEAST_LINKS * link:
        raise InputError(f"found a capacity of {high / link:.3g} links; expected at least {LEAST_LINKS}: ask for a lower utilisation")
    return high


def facts(work: BatchWork) -> dict[str, Any]:
    """The work in a few numbers, for reports."""
    return {"jobs": len(work), "nodes": work.jobs.machine_nodes, "capacity": work.capacity, "io_load": round(work.load, 4)}
