"""The start that a scheduler would plan for a new job: all queued jobs on the profile of free nodes, in queue order, and then this one."""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop
from armillary.scheduling.queueing.profile import hole, take
from armillary.scheduling.queueing.state import HEAD, LEAST_S, RUNNING

#: By how many seconds a prediction is raised each time that a job outlives it (Tsafrir, Etsion and Feitelson, TPDS 2007).
CORRECTIONS = np.array([60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000], float)


@loop
def plan_queue(s, p, depth, seconds, planned):  # type: ignore[no-untyped-def]
    """Plans up to `depth` queued jobs on the profile `p`, oldest first, for `seconds` each; returns how many were planned.

    `planned[j]` becomes the start of each planned job. Every job takes the earliest hole that the older ones leave, so no younger job
    delays an older one.
    """
    k, done = s.counts[HEAD], 0
    while k >= 0 and done < depth:
        lasts = max(seconds[k], LEAST_S)
        planned[k] = hole(p, s.nodes[k], lasts)
        take(p, s.nodes[k], planned[k], planned[k] + lasts)
        k = s.following[k]
        done += 1
    return done


@loop
def correct_overdue(s, p, now, start, requested, corrections):  # type: ignore[no-untyped-def]
    """Gives running jobs that have outlived their prediction more time on the profile, at most up to their request.

    `from_running` takes them to end now; their nodes are taken again until the first correction that lies in the future.
    """
    for i in range(s.counts[RUNNING]):
        j = s.running[i]
        if s.expected[j] > now:
            break
        end = corrected(s.expected[j], now, start[j] + requested[j], corrections)
        if end > now:
            take(p, s.nodes[j], now, end)


@loop
def corrected(end, now, latest, corrections):  # type: ignore[no-untyped-def]
    """A predicted end, raised by the first correction that puts it into the future, at most to `latest`."""
    if end > now:
        return end
    raised = end
    for c in corrections:
        raised = end + c
        if raised > now:
            break
    return min(raised, latest)
