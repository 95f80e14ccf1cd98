"""What all queueing policies share: a kernel that decides, and the two ways to ask it, in the simulator and about a real queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.arena import Technique
from armillary.errors import InputError
from armillary.scheduling.slurm import Running, Waiting

if TYPE_CHECKING:
    from armillary.scheduling.batch.workload import BatchWork

    from .replay import Played

__all__ = ["Policy", "Running", "Settings", "Waiting"]

#: The kernels that the loop knows.
FCFS, EASY, SJF_EASY, CONSERVATIVE, BANDWIDTH_LICENSE, PEAK_LICENSE, EQUILIBRIO = range(7)
#: Jobs that one decision may look at, running ones included.
MOST = 1_000_000


@dataclass(frozen=True)
class Settings:
    """What a kernel is told: which one, the jobs that it looks at, the runs that history averages, and its own numbers."""

    kernel: int
    window: int
    history: int
    numbers: tuple[float, ...] = ()


class Policy(Technique):
    """A queueing policy, which is a decision procedure: given the queue and the running jobs, which jobs start now?"""

    kernel: ClassVar[int]

    def settings(self) -> Settings:
        """The kernel and its numbers."""
        return Settings(self.kernel, int(getattr(self, "window", 1)), int(getattr(self, "history", 5)), self.numbers())

    def numbers(self) -> tuple[float, ...]:
        """The kernel's own numbers, in its order."""
        return ()

    def play(self, work: BatchWork) -> Played:
        """Simulates the whole work under this policy."""
        from .replay import play

        return play(work, self.settings())

    def choose(
        self, queue: Sequence[Waiting], running: Sequence[Running], free_nodes: int, capacity: float = math.inf
    ) -> list[int]:  # fmt: skip
        """The numbers of the jobs that should start now, in this order.

        queue: the waiting jobs, in queue order. running: the jobs that have nodes. free_nodes: nodes that are idle.
        capacity: bytes per second of the file system. Nothing is remembered between two calls.
        """
        from armillary.scheduling.queueing.profile import profile
        from armillary.scheduling.queueing.state import STARTED, enqueue, fresh, occupy

        from .loop import decide

        if not 0 <= free_nodes <= 1 << 24:
            raise InputError(f"found {free_nodes}; expected 0 to 16,777,216 free nodes", where="free_nodes")
        if not capacity > 0.0:
            raise InputError(f"found {capacity}; expected bytes per second above 0", where="capacity")
        jobs: list[Waiting | Running] = [*running, *queue]
        if len(jobs) > MOST:
            raise InputError(f"found {len(jobs):,} jobs; expected at most {MOST:,}", where="queue")
        machine = free_nodes + sum(job.nodes for job in running)
        for job in jobs:
            _check(job, machine)
        if not queue:
            return []
        now = 0.0
        submit = np.array([now - job.waited_s if isinstance(job, Waiting) else -np.inf for job in jobs])
        requested = np.array([job.requested_s if isinstance(job, Waiting) else job.remaining_s for job in jobs], float)
        state = fresh(
            submit, requested, np.array([job.nodes for job in jobs], np.int64), np.array([job.duty for job in jobs], float),
            np.array([job.bandwidth for job in jobs], float), machine, capacity,
        )  # fmt: skip
        for i, job in enumerate(jobs):
            if isinstance(job, Running):
                occupy(state, i, now + job.remaining_s)
            else:
                enqueue(state, i)
        settings = self.settings()
        window = min(settings.window, len(jobs) + 1)
        steps = profile(state, window if settings.kernel == CONSERVATIVE else 1)
        decide(state, now, settings.kernel, window, np.array([*settings.numbers, 0.0]), steps)
        return [jobs[i].job for i in state.started[: state.counts[STARTED]]]


def _check(job: Waiting | Running, machine: int) -> None:
    where = f"job {job.job}"
    if not 1 <= job.nodes <= machine:
        raise InputError(f"found {job.nodes} nodes; expected 1 to the machine's {machine}", where=where)
    if not (0.0 <= job.duty <= 1.0 and 0.0 <= job.bandwidth < math.inf):
        raise InputError(f"found ι = {job.duty}, c = {job.bandwidth}; expected ι from 0 to 1 and c of 0 or more", where=where)
    seconds = job.requested_s if isinstance(job, Waiting) else job.remaining_s
    if not abs(seconds) < math.inf or (isinstance(job, Waiting) and (seconds < 0 or not 0 <= job.waited_s < math.inf)):
        raise InputError("found seconds that are negative or not finite; expected 0 or more", where=where)
