"""The queue played forward under EASY from one instant on, without arrivals: when would the newest job start?"""

from __future__ import annotations

import numpy as np

from armillary.engine.compiled import pop, push
from armillary.kernels import loop
from armillary.scheduling.queueing.backfilling import easy
from armillary.scheduling.queueing.state import FREE, HEAD, LEAST_S, RUNNING, STARTED, TAIL, enqueue, occupy, vacate

from .forecast import corrected


@loop
def play_forward(s, twin, ends, now, j, start, requested, seconds, corrections, depth):  # type: ignore[no-untyped-def]
    """When job `j` would start if it were submitted now and every job ran for `seconds`, decided with requested times.

    s: the machine and its queue; `s.expected` are the predicted ends of running jobs. twin: another state of the same jobs, which is
    overwritten. ends: a heap with room for all jobs. depth: the queued jobs that are played before `j`.
    """
    twin.counts[:] = 0
    twin.counts[FREE], twin.counts[HEAD], twin.counts[TAIL] = np.int64(s.machine[1]), -1, -1
    ends.held[:] = 0
    for i in range(s.counts[RUNNING]):
        k = s.running[i]
        occupy(twin, k, start[k] + requested[k])
        push(ends, max(corrected(s.expected[k], now, start[k] + requested[k], corrections), now), 0, k)
    k, done = s.counts[HEAD], 0
    while k >= 0 and done < depth:
        enqueue(twin, k)
        k = s.following[k]
        done += 1
    enqueue(twin, j)
    while True:
        while ends.held[0] > 0 and ends.time[0] <= now:
            _, _, k = pop(ends)
            vacate(twin, k)
        twin.counts[STARTED] = 0
        easy(twin, now, depth + 1)
        for i in range(twin.counts[STARTED]):
            k = twin.started[i]
            if k == j:
                return now
            push(ends, now + max(seconds[k], LEAST_S), 0, k)
        if ends.held[0] == 0:
            return now
        now = ends.time[0]
