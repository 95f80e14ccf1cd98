"""A plain simulator of pods to compare the compiled ones with: objects in lists, searched from end to end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from armillary.scheduling.faas import Invocations


@dataclass
class Pod:
    """One pod: when it became idle, and from when until when it is warm."""

    end: float
    begin: float
    until: float


def one_function(gaps: list[float], *, duration: float = 1.0, cold: float = 2.0, vcpu: float = 1.0, memory: float = 1.0) -> Invocations:
    """One function whose pod waits these seconds after each invocation."""
    arrival = [0.0]
    for gap in gaps:
        arrival.append(arrival[-1] + duration + gap)
    n = len(arrival)
    return Invocations.of(np.zeros(n, int), arrival, np.full(n, duration), functions=1, cold_s=cold, vcpu=vcpu, memory_gb=memory)


def reference(
    trace: Invocations, decide: Callable[[int, int, float, list[float]], tuple[float, float]], *, reuse: str = "mru", busy: bool = False
) -> tuple[list[bool], list[float], float]:
    """(cold of each invocation, idle seconds of each function, latest time); `decide(function, invocation, end, gaps)` gives two times.

    gaps: those that were observed so far, between arrivals and the latest unpaired end.
    """
    cold = [False] * len(trace)
    idle = [0.0] * trace.functions
    latest = 0.0
    for f in range(trace.functions):
        pods: list[Pod] = []
        running: list[tuple[float, int]] = []
        unpaired: list[float] = []
        gaps: list[float] = []

        def spend(start: float, stop: float, f: int = f) -> None:
            idle[f] += max(0.0, min(stop, trace.horizon_s) - start)

        for i in [*range(int(trace.offsets[f]), int(trace.offsets[f + 1])), -1]:
            t = float(trace.arrival_s[i]) if i >= 0 else math.inf
            for end, which in sorted(r for r in running if r[0] <= t):
                running.remove((end, which))
                pods.append(Pod(end, *decide(f, which, end, gaps)))
                unpaired.append(end)
                latest = max(latest, end)
            if i < 0:
                break
            if unpaired:
                gaps.append(t - unpaired.pop())
            for pod in [pod for pod in pods if pod.until < t]:
                spend(pod.begin, pod.until)
                pods.remove(pod)
            warm = [pod for pod in pods if pod.begin <= t]
            coming = [pod for pod in pods if pod.begin > t]
            if warm:
                taken = warm[-1] if reuse == "mru" else warm[0]
                spend(taken.begin, t)
                pods.remove(taken)
            else:
                cold[i] = True
                if coming:
                    pods.remove(coming[-1] if reuse == "mru" else coming[0])
            running.append((t + float(trace.duration_s[i]) + (float(trace.cold_s[f]) if busy and cold[i] else 0.0), i))
        for pod in pods:
            spend(pod.begin, pod.until)
    return cold, idle, latest
