"""EASY backfilling: a job may pass the blocked head of the queue if it does not delay the head's reservation.

The head gets the earliest time at which the running jobs' requested times free enough nodes for it (its *shadow time*). A younger job
that fits now may start if it is expected to end by then, or if it needs only nodes that the head leaves free (*extra* nodes).

Lifka, The ANL/IBM SP scheduling system, JSSPP 1995.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.kernels import loop
from armillary.parameters import parameter

from .planning.reservation import reserve
from .simulation.policy import EASY, Policy
from .simulation.state import FREE, HEAD, begin, last_in_window

#: The parameter that all backfilling policies share.
WINDOW = "queued jobs that one decision looks at, as Slurm's bf_max_job_test"


@dataclass(frozen=True)
class Easy(Policy):
    """Backfills jobs that do not delay the head's reservation, in queue order."""

    window: int = parameter(500, WINDOW, range=(1, 100_000))

    kernel = EASY


@loop
def easy(s, now, window):  # type: ignore[no-untyped-def]
    """Starts heads while they fit, then whatever of the window does not delay the first that does not."""
    while s.counts[HEAD] >= 0 and s.counts[FREE] > 0:
        last = last_in_window(s, window)
        head = start_heads(s, now, last)
        if head < 0:
            continue
        shadow, extra = reserve(s, head, now)
        j = s.following[head]
        while 0 <= j <= last and s.counts[FREE] > 0:
            after = s.following[j]
            if s.nodes[j] <= s.counts[FREE]:
                if now + s.requested[j] <= shadow:
                    begin(s, j, now)
                elif s.nodes[j] <= extra:
                    extra -= s.nodes[j]
                    begin(s, j, now)
            j = after
        return


@loop
def start_heads(s, now, last):  # type: ignore[no-untyped-def]
    """Starts heads up to job `last` while they fit; returns the first that does not, or -1."""
    while 0 <= s.counts[HEAD] <= last:
        head = s.counts[HEAD]
        if s.nodes[head] > s.counts[FREE]:
            return head
        begin(s, head, now)
    return -1
