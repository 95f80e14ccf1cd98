"""The two classic backfilling rules as compiled decisions over a queue's state: EASY and conservative.

EASY gives the blocked head of the queue a reservation that no younger job may delay; conservative gives one to every job.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

from .profile import from_running, hole, take
from .reservation import reserve
from .state import ENDED, FREE, HEAD, LEAST_S, RUNNING, begin, last_in_window


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
