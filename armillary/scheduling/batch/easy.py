"""EASY backfilling: a job may pass the blocked head of the queue if it does not delay the head's reservation.

The head gets the earliest time at which the running jobs' requested times free enough nodes for it (its *shadow time*). A younger job
that fits now may start if it is expected to end by then, or if it needs only nodes that the head leaves free (*extra* nodes).
The decision itself stands in `armillary.scheduling.queueing.backfilling`, because other arenas simulate logs with it.

Lifka, The ANL/IBM SP scheduling system, JSSPP 1995.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .simulation.policy import EASY, Policy

#: The parameter that all backfilling policies share.
WINDOW = "queued jobs that one decision looks at, as Slurm's bf_max_job_test"


@dataclass(frozen=True)
class Easy(Policy):
    """Backfills jobs that do not delay the head's reservation, in queue order."""

    window: int = parameter(500, WINDOW, range=(1, 100_000))

    kernel = EASY
