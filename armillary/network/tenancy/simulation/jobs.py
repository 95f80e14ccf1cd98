"""Jobs that come and go on Kubernetes under a technique: when their pods start, which jobs get no VNI, and when VNIs are used again.

The pods are played by `pods.Cluster`; VNIs are really acquired from and released to the technique's database, in simulated time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..service.database import QUARANTINE_S
from .attacks import EPOCH_S
from .fabric import Fabric, Isolation, Job, Refused
from .pods import Added, Cluster, Floats, Ints, Kubernetes, Started

#: Seconds after which the controller asks again for a job that was refused.
ASK_AGAIN_S = 5.0
#: How often a job is asked for before its owner gives up (ours: two hours).
MOST_ASKS = 1440


@dataclass(frozen=True)
class JobsWork:
    """Jobs with their pods, and the cluster and the range of VNIs on which they meet.

    deleted_s: seconds after the start of its last pod at which a job is deleted while it runs; infinite for one that ends by itself. Its
    pods end `linger_s` after that.
    """

    submit_s: Floats
    pods: Ints
    run_s: Floats
    tenant: Ints
    claim: tuple[str, ...]
    deleted_s: Floats
    linger_s: Floats
    noise: Floats
    kubernetes: Kubernetes
    low: int
    high: int

    def __len__(self) -> int:
        return len(self.submit_s)


@dataclass(frozen=True)
class PlayedJobs:
    """What became of the jobs, natively and under the technique."""

    native: Started
    started: Started
    failures: int
    hazards: int
    #: VNIs that were held at once, at most, and calls of hooks that ended in an error.
    most_held: int
    errors: int

    def metrics(self) -> Mapping[str, float]:
        """The simulated metrics."""
        here = np.isfinite(self.started.delay_s) & np.isfinite(self.native.delay_s)
        added = self.started.delay_s[here] - self.native.delay_s[here]
        if not len(added):
            return {}
        native = float(self.native.delay_s[here].mean())
        return {
            "admission_delay": float(added.mean()), "admission_delay_p99": float(np.quantile(added, 0.99)),
            "start_overhead": 100 * float(added.mean()) / native, "start_delay": float(self.started.delay_s[here].mean()),
        }  # fmt: skip


class _Book:
    """VNIs of the jobs of one run: acquires and releases them, and counts."""

    def __init__(self, work: JobsWork, fabric: Fabric, now: list[float]) -> None:
        self.work, self.fabric, self.now = work, fabric, now
        self.jobs = [Job(f"job-{i}", int(tenant), claim) for i, (tenant, claim) in enumerate(zip(work.tenant, work.claim))]
        self.refused: set[int] = set()
        self.hazards = self.most_held = 0
        self._released_s: dict[int, float] = {}
        self._holders: dict[int, int] = {}

    def acquired(self, job: int, now: float) -> bool:
        """Whether the job has its VNI now."""
        self.now[0] = EPOCH_S + now
        try:
            self.fabric.admit(self.jobs[job])
        except Refused:
            self.refused.add(job)
            return False
        counts = self.fabric.recycles and not self.jobs[job].claim
        for vni in self.fabric.held[self.jobs[job].name]:
            if counts and now - self._released_s.get(vni, -np.inf) < QUARANTINE_S:
                self.hazards += 1
            self._holders[vni] = self._holders.get(vni, 0) + 1
        self.most_held = max(self.most_held, sum(1 for count in self._holders.values() if count))
        return True

    def released(self, job: int, now: float) -> None:
        """The job was deleted."""
        self.now[0] = EPOCH_S + now
        name = self.jobs[job].name
        held = self.fabric.held.get(name)
        if held is None:
            return
        self.fabric.release(self.jobs[job])
        self.fabric.gone(self.jobs[job])
        for vni in held:
            self._holders[vni] -= 1
            self._released_s[vni] = now


def play(technique: Isolation, work: JobsWork, native: Started | None = None) -> PlayedJobs:
    """Plays the jobs natively, unless that was done before, and under a technique, with the same draws."""
    before = play_native(work) if native is None else native
    now = [EPOCH_S]
    fabric = technique.fabric(lambda: now[0], low=work.low, high=work.high)
    try:
        book = _Book(work, fabric, now)
        started = _cluster(work, technique.added(), book).play()
    finally:
        fabric.close()
    return PlayedJobs(before, started, len(book.refused), book.hazards, book.most_held, fabric.errors)


def play_native(work: JobsWork) -> Started:
    """The jobs on the same cluster without VNIs."""
    return _cluster(work, Added(), None).play()


def _cluster(work: JobsWork, added: Added, book: _Book | None) -> Cluster:
    ends = np.minimum(work.run_s, work.deleted_s + work.linger_s)
    hooks: dict[str, Any] = {} if book is None else {"acquired": book.acquired, "released": book.released}
    return Cluster(
        work.submit_s, work.pods, ends, work.noise, work.kubernetes, replace(added), deleted_s=work.deleted_s, ask_again_s=ASK_AGAIN_S,
        most_asks=MOST_ASKS, **hooks,
    )  # fmt: skip
