"""Conservative backfilling: every job holds a reservation from its arrival on, so no job delays any older one.

A new job gets the earliest hole in the profile of free nodes that the running jobs' requests and all older reservations leave. When a job
ends, each queued job in turn gives its reservation up and takes the earliest hole, which is never later. That is done at every end,
because one pass after an early end may leave a hole that only the next pass can use. Only where a job overruns its request, so that a
promised start has passed, are all reservations made anew.

Mu'alem and Feitelson, Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling,
TPDS 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop
from armillary.parameters import parameter

from .easy import WINDOW
from .planning.profile import from_running, hole, take
from .simulation.policy import CONSERVATIVE, Policy
from .simulation.state import ENDED, FREE, HEAD, LEAST_S, RUNNING, begin, last_in_window


@dataclass(frozen=True)
class Conservative(Policy):
    """Gives each of the oldest `window` queued jobs a reservation that never moves later."""

    window: int = parameter(500, WINDOW, range=(1, 100_000))

    kernel = CONSERVATIVE


@loop
def conservative(s, now, window, p):  # type: ignore[no-untyped-def]
    """Places new jobs, moves reservations earlier where a job ended, and starts the jobs whose time has come."""
    while s.counts[HEAD] >= 0:
        last = last_in_window(s, window)
        _place(s, now, last, p)
        j, left = s.counts[HEAD], 0
        while 0 <= j <= last:
            after = s.following[j]
            # An overdue job may still hold the nodes that were promised.
            if s.reserved[j] <= now and s.nodes[j] <= s.counts[FREE]:
                begin(s, j, now)
            else:
                left += 1
            j = after
        if left > 0:
            return


@loop
def _place(s, now, last, p):  # type: ignore[no-untyped-def]
    broken = s.counts[RUNNING] > 0 and s.expected[s.running[0]] <= now
    j = s.counts[HEAD]
    while 0 <= j <= last and not broken:
        broken = s.reserved[j] < now
        j = s.following[j]
    ended = s.counts[ENDED] == 1
    s.counts[ENDED] = 0
    from_running(p, s, now)
    j = s.counts[HEAD]
    while 0 <= j <= last:
        if broken:
            s.reserved[j] = np.nan
        elif s.reserved[j] >= now:
            take(p, s.nodes[j], s.reserved[j], s.reserved[j] + max(s.requested[j], LEAST_S))
        j = s.following[j]
    j = s.counts[HEAD]
    while 0 <= j <= last:
        seconds = max(s.requested[j], LEAST_S)
        if s.reserved[j] >= now and ended:
            take(p, -s.nodes[j], s.reserved[j], s.reserved[j] + seconds)
            s.reserved[j] = np.nan
        if np.isnan(s.reserved[j]):
            s.reserved[j] = hole(p, s.nodes[j], seconds)
            take(p, s.nodes[j], s.reserved[j], s.reserved[j] + seconds)
        j = s.following[j]
