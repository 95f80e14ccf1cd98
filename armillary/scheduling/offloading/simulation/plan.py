"""Routes that are planned with all requests known, and how they are played.

A plan says the backend of every request. A change of backend between two requests means that the new pod was started early enough to be
ready when the second one arrives; the old pod finishes what it has. A pod is billed from its start on, also while it is idle, until it is
replaced and empty. A request on the GPU runs only where its whole service fits between two absences of the node, after which the pod has
to start again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop
from armillary.scheduling.offloading.workload import OffloadingWork

from .play import Played
from .policy import GPU, Floats

#: Backlogs that are kept per backend and request, of few and of many requests; with fewer the plan is exact.
LABELS, LABELS_OF_MANY, MANY = 512, 32, 2_000
#: Requests of one function that can be planned.
MOST_PLANNED = 300_000


@loop
def _begin(b, at, service, cold, down):  # type: ignore[no-untyped-def]
    """The first time from `at` on at which a request can run through on backend b."""
    if b == GPU:
        for k in range(np.searchsorted(down[:, 1], at, side="right"), down.shape[0]):
            if down[k, 0] >= at + service:
                break
            if down[k, 1] > at:
                at = down[k, 1] + cold
    return at


@loop
def _billed(b, start, until, down):  # type: ignore[no-untyped-def]
    """Seconds from start to until for which a pod of backend b is there."""
    seconds = max(0.0, until - start)
    if b == GPU:
        for k in range(np.searchsorted(down[:, 1], start, side="right"), down.shape[0]):
            if down[k, 0] >= until:
                break
            seconds -= max(0.0, min(until, down[k, 1]) - max(start, down[k, 0]))
    return seconds


@loop
def _plan(closed, arrival, service, cold, down, horizon, value, price, labels):  # type: ignore[no-untyped-def]
    """(backend of each request, objective, whether every backlog was kept)."""
    n = service.shape[1]
    # Per backend and label: the objective so far, when the pod is free, and until when it is billed.
    cost, free, paid = np.full((2, labels), math.inf), np.zeros((2, labels)), np.zeros((2, labels))
    parent, many = np.zeros((n, 2, labels), np.int32), np.zeros(2, np.int64)
    exact = True
    new = np.zeros((4 * labels, 4))
    for i in range(n):
        next_cost, next_free, next_paid = np.full((2, labels), math.inf), np.zeros((2, labels)), np.zeros((2, labels))
        found = np.zeros(2, np.int64)
        for b in range(2):
            count = 0
            for old in range(2):
                for k in range(many[old] if i > 0 else (1 if old == b else 0)):
                    if i == 0:
                        at = 0.0 if closed else arrival[0]
                        ready, spent, until = cold[b], 0.0, 0.0
                    else:
                        at = free[old, k] if closed else arrival[i]
                        spent = cost[old, k] + price[old] * _billed(old, paid[old, k], at, down)
                        until = at
                        if old == b:
                            ready = free[old, k]
                        else:
                            spent += price[old] * _billed(old, at, max(at, free[old, k]), down)
                            spent += price[b] * min(cold[b], at)
                            ready = max(at, cold[b])
                    end = _begin(b, max(at, ready), service[b, i], cold[b], down) + service[b, i]
                    new[count, 0], new[count, 1], new[count, 2] = spent + value * (end - at), end, until
                    new[count, 3] = old * labels + k
                    count += 1
            # A label is kept if none with an earlier end has a lower objective. In a closed loop only the objective counts, because
            # what follows does not depend on the time unless the GPU's node vanishes.
            order = np.argsort(new[:count, 1], kind="mergesort")
            best = math.inf
            for r in range(count):
                row = order[r]
                owed = new[row, 0] + (price[b] * _billed(b, new[row, 2], new[row, 1], down) if closed else 0.0)
                if owed < best:
                    if closed and down.shape[0] == 0:
                        found[b] = 0
                    best = owed
                    if found[b] < labels:
                        place = found[b]
                        found[b] += 1
                    else:
                        exact = False
                        place = labels - 1
                    next_cost[b, place], next_free[b, place], next_paid[b, place] = new[row, 0], new[row, 1], new[row, 2]
                    parent[i, b, place] = int(new[row, 3])
        cost, free, paid, many = next_cost, next_free, next_paid, found
    total, last = math.inf, 0
    for b in range(2):
        for k in range(many[b]):
            value_at_end = cost[b, k] + price[b] * _billed(b, paid[b, k], max(horizon, free[b, k]), down)
            if value_at_end < total:
                total, last = value_at_end, b * labels + k
    chosen = np.zeros(n, np.int64)
    for i in range(n - 1, -1, -1):
        b, k = last // labels, last % labels
        chosen[i] = b
        last = parent[i, b, k]
    return chosen, total, exact


@loop
def _follow(closed, arrival, service, cold, down, horizon, chosen, latency, pod_s):  # type: ignore[no-untyped-def]
    """(switches, end) of a plan; fills latencies and pod seconds."""
    n = service.shape[1]
    free, paid, switches, last = 0.0, 0.0, 0, horizon
    for i in range(n):
        b = chosen[i]
        at = (free if i > 0 else 0.0) if closed else arrival[i]
        if i == 0:
            ready = cold[b]
        else:
            old = chosen[i - 1]
            pod_s[old] += _billed(old, paid, at, down)
            paid = at
            ready = free
            if old != b:
                pod_s[old] += _billed(old, at, max(at, free), down)
                pod_s[b] += min(cold[b], at)
                ready = max(at, cold[b])
                switches += 1
        free = _begin(b, max(at, ready), service[b, i], cold[b], down) + service[b, i]
        latency[i] = free - at
        last = max(last, free)
    if n > 0:
        pod_s[chosen[n - 1]] += _billed(chosen[n - 1], paid, max(horizon, free), down)
    return switches, last


@dataclass(frozen=True)
class Plan:
    """The backend of every request, what the plan promises, and whether it is proved to be the best."""

    backend: np.ndarray
    objective: float
    exact: bool


def plan(work: OffloadingWork, value_usd_per_s: float, labels: int = 0) -> Plan:
    """The route with the least value·Σ latency + pod seconds × price, for all functions of the work."""
    idle = int((np.diff(work.offsets) == 0).sum())
    backend, total, exact = np.zeros(len(work), np.int64), work.prices[0] * work.horizon_s * idle, True
    for rows, arguments in _parts(work):
        kept = labels or (LABELS if rows.stop - rows.start <= MANY else LABELS_OF_MANY)
        chosen, objective, proved = _plan(*arguments, value_usd_per_s, np.array(work.prices), kept)
        backend[rows] = chosen
        total, exact = total + float(objective), exact and bool(proved)
    return Plan(backend, total, exact)


def follow(work: OffloadingWork, backend: np.ndarray) -> Played:
    """Plays a plan."""
    latency, pod_s, switches, end = np.zeros(len(work)), np.zeros(2), 0, 0.0
    for rows, arguments in _parts(work):
        changed, last = _follow(*arguments, np.ascontiguousarray(backend[rows]), latency[rows], pod_s)
        switches, end = switches + int(changed), max(end, float(last))
    # A function that nobody calls keeps a CPU pod.
    pod_s[0] += work.horizon_s * int((np.diff(work.offsets) == 0).sum())
    return Played(latency, backend, np.zeros(len(work), np.bool_), pod_s, switches, (), end)


def _parts(work: OffloadingWork) -> list[tuple[slice, tuple[bool, Floats, Floats, Floats, Floats, float]]]:
    found = []
    for f in range(work.functions):
        rows = slice(int(work.offsets[f]), int(work.offsets[f + 1]))
        # Copies, because a case's arrays are read-only, for which the loops would be compiled once more.
        service, cold = work.service_s[:, rows].copy(), work.start_s[f, :, 0].copy()
        if rows.stop > rows.start:
            found.append((rows, (work.closed, work.arrival_s[rows].copy(), service, cold, work.down_s.copy(), work.horizon_s)))
    return found
