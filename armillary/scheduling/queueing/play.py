"""Plays jobs that only compute under first come, first served, EASY or conservative backfilling: when does each start?

It is the loop of `scheduling/batch` without its file system, for arenas that need a log with waits. All ends of one instant are handled
before its submissions, and then the policy decides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from armillary.engine.compiled import heap, pop, push
from armillary.errors import InputError
from armillary.kernels import loop
from armillary.scheduling.swf import Jobs

from .backfilling import conservative, easy, start_heads
from .profile import profile
from .state import HEAD, STARTED, TAIL, enqueue, fresh, vacate

#: The policies by name.
POLICIES = ("fcfs", "easy", "conservative")
_FCFS, _EASY, _CONSERVATIVE = range(3)


def starts(jobs: Jobs, policy: str = "easy", *, window: int = 500) -> npt.NDArray[np.float64]:
    """When each job starts under a policy of `POLICIES`, in seconds on the clock of `submit_s`.

    window: the queued jobs that one decision of a backfilling policy looks at.
    """
    if policy not in POLICIES:
        raise InputError(f'found "{policy}"; expected one of {", ".join(POLICIES)}', where="policy")
    n = len(jobs)
    if not n:
        return np.empty(0)
    first = float(jobs.submit_s[0])
    zero = np.zeros(n)
    state = fresh(jobs.submit_s - first, jobs.requested_s, jobs.nodes, zero, zero, jobs.machine_nodes, np.inf)
    kernel, seen = POLICIES.index(policy), min(window, n + 1)
    begun = np.full(n, np.nan)
    whole = _run(state, jobs.run_s, begun, heap(n + 1), profile(state, seen if kernel == _CONSERVATIVE else 1), kernel, seen)
    if not whole or np.isnan(begun).any():
        raise RuntimeError("the simulation lost a job")
    return begun + first


def with_waits(jobs: Jobs, policy: str = "easy", *, window: int = 500) -> Jobs:
    """The same jobs with the waits that they would have under a policy."""
    return replace(jobs, wait_s=starts(jobs, policy, window=window) - jobs.submit_s)


@loop
def _run(s, run, begun, ends, p, kernel, window):  # type: ignore[no-untyped-def]
    n, arrived = len(run), 0
    while True:
        now = np.inf
        if arrived < n:
            now = s.submit[arrived]
        if ends.held[0] > 0:
            now = min(now, ends.time[0])
        if now == np.inf:
            return True
        while ends.held[0] > 0 and ends.time[0] <= now:
            _, _, j = pop(ends)
            vacate(s, j)
        while arrived < n and s.submit[arrived] <= now:
            enqueue(s, arrived)
            arrived += 1
        if s.counts[HEAD] < 0:
            continue
        s.counts[STARTED] = 0
        if kernel == _FCFS:
            start_heads(s, now, s.counts[TAIL])
        elif kernel == _EASY:
            easy(s, now, window)
        else:
            conservative(s, now, window, p)
        for i in range(s.counts[STARTED]):
            j = s.started[i]
            begun[j] = now
            if not push(ends, now + run[j], 0, j):
                return False
