"""Pods with keep-alive, played out: who serves an arrival, who starts cold, and how long pods idle.

A pod serves one request at a time. An arrival takes a warm idle pod of its function, the most recently used one (`reuse="mru"`) or the
one that waited longest (`"lru"`), or else starts a pod, which costs the function's cold start. When a pod becomes idle it is given the
times from when and until when it is warm; a later decision does not change them. A pod that is to become warm only later (pre-warming)
is replaced by an arrival that comes before it.

Compiled loops keep the idle pods of one function as rows (warm from, until) in the order in which they became idle, and the busy ones in
a heap of (end, invocation). `Played` is what a play counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import kernel, loop

from .invocations import Floats, Ints, Invocations

Array = npt.NDArray[Any]

#: Latencies are counted in bins of equal ratio, from 0.1 ms to 10^6 s, so that quantiles of any number of invocations are right to 0.3 %.
BINS, LEAST_S, MOST_S = 8192, 1e-4, 1e6
_PER_LOG = BINS / math.log(MOST_S / LEAST_S)
REUSES = ("mru", "lru")
STARTUPS = ("beside", "busy")


@dataclass(frozen=True)
class Played:
    """What a play counts, for each function."""

    #: Invocations, and how many of them started cold.
    invocations: Ints
    cold: Ints
    #: Seconds that pods were warm and idle, and the same weighted by the series that the play was given (g·s/kWh for carbon).
    idle_s: Floats
    weighted: Floats
    #: Seconds of cold starts and durations together.
    latency_s: Floats
    #: Latencies by bin.
    latencies: Ints

    @staticmethod
    def empty(functions: int) -> Played:
        """Nothing was played yet."""
        invocations, cold = np.zeros((2, functions), np.int64)
        idle, weighted, latency = np.zeros((3, functions))
        return Played(invocations, cold, idle, weighted, latency, np.zeros(BINS, np.int64))

    @staticmethod
    def joined(parts: Sequence[Played]) -> Played:
        """Plays of several blocks of functions as one."""
        invocations, cold, idle, weighted, latency = (np.concatenate(columns) for columns in zip(*(part.arrays[:5] for part in parts)))
        return Played(invocations, cold, idle, weighted, latency, np.sum([part.latencies for part in parts], 0))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays, as compiled loops take them."""
        return self.invocations, self.cold, self.idle_s, self.weighted, self.latency_s, self.latencies

    def quantile(self, share: float) -> float:
        """The latency in seconds below which this share of the invocations stays: the upper end of its bin."""
        total = int(self.latencies.sum())
        if not total:
            return 0.0
        k = int(np.searchsorted(np.cumsum(self.latencies), math.ceil(share * total)))
        return float(LEAST_S * math.exp((k + 1) / _PER_LOG))


def play(
    trace: Invocations, keep_s: npt.ArrayLike, *, series: tuple[Floats, Floats, Floats] | None = None, reuse: str = "mru",
    startup: str = "beside", count_from_s: float = -math.inf,
) -> Played:  # fmt: skip
    """Plays a trace with given keep-alives: one number of seconds, one per function, or one per invocation.

    keep_s: if a trace has as many invocations as functions, the numbers are those of the functions.
    series: (times, values, cumulative) of a step function by which idle seconds are weighted; 1 without it.
    startup: "beside" lets a cold start delay the answer only; "busy" also holds the pod that long.
    count_from_s: earlier invocations and idle times are played and not counted.
    """
    check_rules(reuse, startup)
    keep = np.asarray(keep_s, np.float64)
    if keep.shape not in ((), (trace.functions,), (len(trace),)) or np.isnan(keep).any() or (keep.size and keep.min() < 0):
        raise InputError("found keep-alives of another shape or below 0; expected one number, one per function, or one per invocation")
    single = keep.shape == (len(trace),) and keep.shape != (trace.functions,)
    keep = np.ascontiguousarray(keep if single else np.broadcast_to(keep, (trace.functions,)))
    played = Played.empty(trace.functions)
    times, values, cumulative = series if series is not None else (np.zeros(1), np.ones(1), np.zeros(1))
    _play(
        trace.offsets, trace.arrival_s, trace.duration_s, trace.cold_s, keep, single, times, values, cumulative, reuse == "lru",
        startup == "busy", float(count_from_s), trace.horizon_s, *played.arrays,
    )  # fmt: skip
    return played


def check_rules(reuse: str, startup: str) -> None:
    """Raises InputError for rules that no play knows."""
    for name, found, known in (("reuse", reuse, REUSES), ("startup", startup, STARTUPS)):
        if found not in known:
            raise InputError(f'found "{found}"; expected {" or ".join(known)}', where=name)


def shadow_gaps(trace: Invocations) -> Floats:
    """How long the pod of each invocation would wait for its next use if no pod ever left and the latest one served, in seconds.

    A pod without a next use waits for ever (infinity). Each arrival is paired with the latest end, so pairs are nested or disjoint, and no
    other pairing idles less for as many reuses.
    """
    gaps = np.full(len(trace), np.inf)
    _shadow(trace.offsets, trace.arrival_s, trace.duration_s, gaps)
    return gaps


def peaks(trace: Invocations) -> Ints:
    """The most invocations of each function that run at once."""
    found = np.zeros(trace.functions, np.int64)
    _peaks(trace.offsets, trace.arrival_s, trace.duration_s, found)
    return found


@kernel
def step_of(times: Array, t: float) -> int:
    """The number of the last of some increasing times that is at most t, or 0."""
    low, high = 0, times.shape[0]
    while high - low > 1:
        middle = (low + high) >> 1
        if times[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@kernel
def integral(times: Array, values: Array, cumulative: Array, t: float) -> float:
    """∫ of a step function until t; the first and last value hold beyond the ends."""
    k = step_of(times, t)
    return cumulative[k] + values[k] * (t - times[k])


@kernel
def value_at(times: Array, values: Array, t: float) -> float:
    """The value of a step function at t."""
    return values[step_of(times, t)]


@kernel
def charge(sums: Array, times: Array, values: Array, cumulative: Array, start: float, stop: float, first: float, last: float) -> None:
    """Adds the idle time from start to stop, as far as it lies between `first` and `last`, to sums = (seconds, weighted)."""
    start, stop = max(start, first), min(stop, last)
    if stop > start:
        sums[0] += stop - start
        sums[1] += integral(times, values, cumulative, stop) - integral(times, values, cumulative, start)


@kernel
def _remove(pods: Array, n: int, i: int) -> None:
    for k in range(i, n - 1):
        pods[k, 0], pods[k, 1] = pods[k + 1, 0], pods[k + 1, 1]


@kernel
def serve(
    pods: Array, n: int, t: float, oldest: bool, sums: Array, times: Array, values: Array, cumulative: Array, first: float, last: float
) -> tuple[int, bool]:
    """Takes a warm idle pod for an arrival at t: (pods left, whether there was one). Pods that have expired leave and are charged."""
    i = 0 if oldest else n - 1
    pending = -1
    while 0 <= i < n:
        if pods[i, 1] < t:
            charge(sums, times, values, cumulative, pods[i, 0], pods[i, 1], first, last)
            _remove(pods, n, i)
            n -= 1
            if i < pending:
                pending -= 1
            if not oldest:
                i -= 1
        elif pods[i, 0] > t:
            if pending < 0:
                pending = i
            i += 1 if oldest else -1
        else:
            charge(sums, times, values, cumulative, pods[i, 0], t, first, last)
            _remove(pods, n, i)
            return n - 1, True
    if pending >= 0:
        _remove(pods, n, pending)
        n -= 1
    return n, False


@kernel
def leave(pods: Array, n: int, sums: Array, times: Array, values: Array, cumulative: Array, first: float, last: float) -> None:
    """Charges all idle pods until they expire."""
    for i in range(n):
        charge(sums, times, values, cumulative, pods[i, 0], pods[i, 1], first, last)


@loop
def grown(rows: Array) -> Array:
    """The rows in an array of twice the length."""
    wider = np.empty((2 * rows.shape[0], rows.shape[1]), rows.dtype)
    wider[: rows.shape[0]] = rows
    return wider


@kernel
def push(busy: Array, n: int, end: float, which: float) -> None:
    """Adds (end, which) to a heap of n rows, which has room."""
    i = n
    while i > 0:
        up = (i - 1) >> 1
        if busy[up, 0] < end or (busy[up, 0] == end and busy[up, 1] < which):
            break
        busy[i, 0], busy[i, 1] = busy[up, 0], busy[up, 1]
        i = up
    busy[i, 0], busy[i, 1] = end, which


@kernel
def pop(busy: Array, n: int) -> None:
    """Removes the first row of a heap of n rows, which the caller has read."""
    end, which = busy[n - 1, 0], busy[n - 1, 1]
    i, m = 0, n - 1
    while True:
        down = 2 * i + 1
        if down >= m:
            break
        if down + 1 < m and (
            busy[down + 1, 0] < busy[down, 0] or (busy[down + 1, 0] == busy[down, 0] and busy[down + 1, 1] < busy[down, 1])
        ):
            down += 1
        if end < busy[down, 0] or (end == busy[down, 0] and which < busy[down, 1]):
            break
        busy[i, 0], busy[i, 1] = busy[down, 0], busy[down, 1]
        i = down
    busy[i, 0], busy[i, 1] = end, which


@kernel
def latency_bin(latency: float) -> int:
    """The bin of a latency."""
    if latency <= LEAST_S:
        return 0
    return min(BINS - 1, int(math.log(latency / LEAST_S) * _PER_LOG))


@loop
def _play(
    offsets: Array, arrival: Array, duration: Array, cold: Array, keep: Array, single: bool, times: Array, values: Array,
    cumulative: Array, oldest: bool, holds: bool, first: float, last: float, invocations: Array, colds: Array, idle: Array,
    weighted: Array, latency: Array, latencies: Array,
) -> None:  # fmt: skip
    pods, busy, sums = np.empty((8, 2)), np.empty((8, 2)), np.zeros(2)
    for f in range(offsets.shape[0] - 1):
        waiting = running = 0
        sums[:] = 0
        for i in range(offsets[f], offsets[f + 1]):
            t = arrival[i]
            while running and busy[0, 0] <= t:
                end, which = busy[0, 0], int(busy[0, 1])
                pop(busy, running)
                running -= 1
                if waiting == pods.shape[0]:
                    pods = grown(pods)
                pods[waiting, 0], pods[waiting, 1] = end, end + keep[which if single else f]
                waiting += 1
            waiting, warm = serve(pods, waiting, t, oldest, sums, times, values, cumulative, first, last)
            taken = duration[i] if warm else cold[f] + duration[i]
            if t >= first:
                invocations[f] += 1
                latency[f] += taken
                latencies[latency_bin(taken)] += 1
                if not warm:
                    colds[f] += 1
            if running == busy.shape[0]:
                busy = grown(busy)
            push(busy, running, t + (taken if holds else duration[i]), i)
            running += 1
        while running:
            end, which = busy[0, 0], int(busy[0, 1])
            pop(busy, running)
            running -= 1
            if waiting == pods.shape[0]:
                pods = grown(pods)
            pods[waiting, 0], pods[waiting, 1] = end, end + keep[which if single else f]
            waiting += 1
        leave(pods, waiting, sums, times, values, cumulative, first, last)
        idle[f] += sums[0]
        weighted[f] += sums[1]


@loop
def _peaks(offsets: Array, arrival: Array, duration: Array, most: Array) -> None:
    busy = np.empty((8, 2))
    for f in range(offsets.shape[0] - 1):
        running = 0
        for i in range(offsets[f], offsets[f + 1]):
            while running and busy[0, 0] <= arrival[i]:
                pop(busy, running)
                running -= 1
            if running == busy.shape[0]:
                busy = grown(busy)
            push(busy, running, arrival[i] + duration[i], i)
            running += 1
            most[f] = max(most[f], running)


@loop
def _shadow(offsets: Array, arrival: Array, duration: Array, gaps: Array) -> None:
    stack, busy = np.empty((8, 2)), np.empty((8, 2))
    for f in range(offsets.shape[0] - 1):
        waiting = running = 0
        for i in range(offsets[f], offsets[f + 1]):
            t = arrival[i]
            while running and busy[0, 0] <= t:
                if waiting == stack.shape[0]:
                    stack = grown(stack)
                stack[waiting, 0], stack[waiting, 1] = busy[0, 0], busy[0, 1]
                waiting += 1
                pop(busy, running)
                running -= 1
            if waiting:
                waiting -= 1
                gaps[int(stack[waiting, 1])] = t - stack[waiting, 0]
            if running == busy.shape[0]:
                busy = grown(busy)
            push(busy, running, t + duration[i], i)
            running += 1
