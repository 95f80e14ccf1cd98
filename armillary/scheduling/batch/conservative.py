"""Conservative backfilling: every job holds a reservation from its arrival on, so no job delays any older one.

A new job gets the earliest hole in the profile of free nodes that the running jobs' requests and all older reservations leave. When a job
ends, each queued job in turn gives its reservation up and takes the earliest hole, which is never later. That is done at every end,
because one pass after an early end may leave a hole that only the next pass can use. Only where a job overruns its request, so that a
promised start has passed, are all reservations made anew. The decision itself stands in `armillary.scheduling.queueing.backfilling`.

Mu'alem and Feitelson, Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling,
TPDS 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .easy import WINDOW
from .simulation.policy import CONSERVATIVE, Policy


@dataclass(frozen=True)
class Conservative(Policy):
    """Gives each of the oldest `window` queued jobs a reservation that never moves later."""

    window: int = parameter(500, WINDOW, range=(1, 100_000))

    kernel = CONSERVATIVE
