"""EASY with the shortest requested time first: the head keeps its reservation, and short jobs pass before long ones.

Tsafrir, Etsion and Feitelson, Backfilling using system-generated predictions rather than user runtime estimates, TPDS 2007, call the
order shortest-job backfilled first; it is used here with the users' requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop
from armillary.parameters import parameter
from armillary.scheduling.queueing.backfilling import start_heads
from armillary.scheduling.queueing.reservation import reserve
from armillary.scheduling.queueing.state import FREE, HEAD, begin, last_in_window

from .easy import WINDOW
from .simulation.policy import SJF_EASY, Policy


@dataclass(frozen=True)
class SjfEasy(Policy):
    """Backfills the jobs that asked for the least time first."""

    window: int = parameter(500, WINDOW, range=(1, 100_000))

    kernel = SJF_EASY


@loop
def sjf_easy(s, now, window):  # type: ignore[no-untyped-def]
    """EASY whose candidates are taken by requested time, and by age where that is equal."""
    while s.counts[HEAD] >= 0 and s.counts[FREE] > 0:
        last = last_in_window(s, window)
        head = start_heads(s, now, last)
        if head < 0:
            continue
        shadow, extra = reserve(s, head, now)
        fitting = np.empty(window, np.int64)
        k, j = 0, s.following[head]
        while 0 <= j <= last:
            if s.nodes[j] <= s.counts[FREE]:
                fitting[k] = j
                k += 1
            j = s.following[j]
        for i in np.argsort(s.requested[fitting[:k]], kind="mergesort"):
            j = fitting[i]
            if s.nodes[j] > s.counts[FREE]:
                continue
            if now + s.requested[j] <= shadow:
                begin(s, j, now)
            elif s.nodes[j] <= extra:
                extra -= s.nodes[j]
                begin(s, j, now)
        return
