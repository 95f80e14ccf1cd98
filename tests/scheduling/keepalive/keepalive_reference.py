"""Plain decisions to compare the compiled ones with."""

from __future__ import annotations

import math

import numpy as np

from armillary.scheduling.energy import JOULES_PER_KWH, Carbon, idle_watts
from armillary.scheduling.faas import Invocations
from armillary.scheduling.keepalive import KeepAliveWork, Knowledge
from armillary.scheduling.keepalive.simulation.reuse import histogram

DAY_S = 86400.0
EDGES = [0.0, *(0.1 * 10 ** (k / 6) for k in range(1, 25))]
MENU = [0.0, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0]
#: Like a training day on the flat grid.
KNOWN = Knowledge(0.33, 0.0021, histogram([0.05, 0.5, 3.0, 20.0, 70.0, 200.0, 4000.0]), 450.0)


def regular(gap: float, count: int = 60, *, cold: float = 1.0, vcpu: float = 1.0, memory: float = 1.0, duration: float = 1.0) -> Invocations:
    """One function that comes back after the same gap each time."""
    arrival = (gap + duration) * np.arange(count)
    return Invocations.of(np.zeros(count, int), arrival, np.full(count, duration), functions=1, cold_s=cold, vcpu=vcpu, memory_gb=memory)


def work_of(trace: Invocations, g_per_kwh: float = 450.0, lam: float = 0.5, knowledge: Knowledge = KNOWN) -> KeepAliveWork:
    """A trace on a flat grid."""
    return KeepAliveWork(trace, Carbon.flat(g_per_kwh), lam, knowledge)


def known_gaps(trace: Invocations) -> list[list[float]]:
    """The gaps that were observed when the pod of each invocation became idle; one function."""
    ends = sorted((float(a + d), i) for i, (a, d) in enumerate(zip(trace.arrival_s, trace.duration_s)))
    found: list[list[float]] = [[] for _ in ends]
    idle: list[float] = []
    gaps: list[float] = []
    for t in [*trace.arrival_s.tolist(), math.inf]:
        while ends and ends[0][0] <= t:
            end, which = ends.pop(0)
            found[which] = list(gaps)
            idle.append(end)
        if idle and t < math.inf:
            gaps.append(t - idle.pop())
    return found


def masses(gaps: list[float], prior: np.ndarray) -> list[float]:
    """The share of each bin: gaps count 1, 0.98, 0.98² … from the latest backwards, and the prior five."""
    shares = [5.0 * float(p) for p in prior]
    for age, gap in enumerate(reversed(gaps)):
        k = max(i for i, edge in enumerate(EDGES) if edge <= gap + 1e-12)
        shares[k] += 0.98**age
    whole = 5.0 + sum(0.98**age for age in range(len(gaps)))
    return [share / whole for share in shares]


def reuse_within(shares: list[float], seconds: float) -> float:
    """The probability of a gap of at most so many seconds; gaps are log-uniform within a bin."""
    total = 0.0
    for k in range(24):
        low, high = EDGES[k], EDGES[k + 1]
        if high <= seconds:
            total += shares[k]
        elif low < seconds:
            total += shares[k] * math.log(seconds / low) / math.log(high / low)
    return total


def cheapest(shares: list[float], late: float, dear: float) -> float:
    """The edge with the least expected cost, by integrating the chance that a pod still waits."""
    best, least = 0.0, late
    for k in range(1, 25):
        end = EDGES[k]
        spent = 0.0
        for j in range(24):
            low, high = EDGES[j], EDGES[j + 1]
            mean = high / 2 if j == 0 else (high - low) / math.log(high / low)
            spent += shares[j] * (min(mean, end) if high <= end else end)
        spent += shares[24] * end
        cost = late * (1 - sum(shares[:k])) + dear * spent
        if cost < least * (1 - 1e-12):
            best, least = end, cost
    return best


def prices(work: KeepAliveWork, f: int = 0) -> tuple[float, float]:
    """(late, dear) at 1 g/kWh of one function."""
    trace = work.trace
    assert isinstance(trace, Invocations)
    watts = float(idle_watts(trace.vcpu[f], trace.memory_gb[f]))
    known = work.knowledge
    return (1 - work.lam) * float(trace.cold_s[f]) / known.latency_s, work.lam * watts / (JOULES_PER_KWH * known.carbon_g)
