"""First come, first served: the oldest job starts as soon as it fits, and nobody passes it.

It is fair and simple, and leaves nodes idle while a wide job waits for them. Slurm calls it `sched/builtin` (Yoo, Jette and Grondona,
SLURM: Simple Linux Utility for Resource Management, JSSPP 2003).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.kernels import loop
from armillary.scheduling.queueing.state import FREE, HEAD, begin

from .simulation.policy import FCFS, Policy


@dataclass(frozen=True)
class Fcfs(Policy):
    """Starts the oldest jobs while they fit."""

    kernel = FCFS


@loop
def fcfs(s, now):  # type: ignore[no-untyped-def]
    """Starts heads of the queue while they fit."""
    while s.counts[HEAD] >= 0 and s.nodes[s.counts[HEAD]] <= s.counts[FREE]:
        begin(s, s.counts[HEAD], now)
