"""Parts for simulators that are Numba loops of their own: an event heap, one shared pool, a processor-sharing station.

All are plain arrays in named tuples, made outside with `heap(...)` and `station(...)` and used inside `njit` with the functions below. They
give what the event loop and its pools give.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from armillary.errors import InputError


class Heap(NamedTuple):
    """Events (time, kind, sequence, payload) in the order of time, then kind, then insertion."""

    time: np.ndarray
    kind: np.ndarray
    sequence: np.ndarray
    payload: np.ndarray
    #: [how many wait, how many were ever put in]
    held: np.ndarray


def heap(capacity: int) -> Heap:
    """An empty heap with room for `capacity` events."""
    if isinstance(capacity, bool) or not hasattr(capacity, "__index__") or not 1 <= capacity.__index__() <= 1 << 32:
        raise InputError(f"capacity: found {capacity!r}; expected a whole number from 1 to 2^32")
    n = int(capacity)
    return Heap(np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(2, np.int64))


@njit(nogil=True, cache=True)
def push(h, time, kind, payload):  # type: ignore[no-untyped-def]
    """Put an event in; false when there is no room."""
    place = h.held[0]
    if place >= len(h.time):
        return False
    sequence = h.held[1]
    h.held[0] += 1
    h.held[1] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if not (time < h.time[parent] or (time == h.time[parent] and kind < h.kind[parent])):
            # At equal time and kind the parent is older.
            break
        _move(h, parent, place)
        place = parent
    h.time[place], h.kind[place], h.sequence[place], h.payload[place] = time, kind, sequence, payload
    return True


@njit(nogil=True, cache=True)
def pop(h):  # type: ignore[no-untyped-def]
    """(time, kind, payload) of the first event, which leaves; (inf, -1, -1) when there is none."""
    if h.held[0] == 0:
        return np.inf, -1, -1
    first = (h.time[0], h.kind[0], h.payload[0])
    h.held[0] -= 1
    last = h.held[0]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and _before(h, child + 1, child):
            child += 1
        if not _before(h, child, last):
            break
        _move(h, child, place)
        place = child
    _move(h, last, place)
    return first


@njit(nogil=True, cache=True)
def _before(h, i, j):  # type: ignore[no-untyped-def]
    if h.time[i] != h.time[j]:
        return h.time[i] < h.time[j]
    if h.kind[i] != h.kind[j]:
        return h.kind[i] < h.kind[j]
    return h.sequence[i] < h.sequence[j]


@njit(nogil=True, cache=True)
def _move(h, source, target):  # type: ignore[no-untyped-def]
    h.time[target], h.kind[target] = h.time[source], h.kind[source]
    h.sequence[target], h.payload[target] = h.sequence[source], h.payload[source]


@njit(nogil=True, cache=True)
def share(capacity, weights, caps):  # type: ignore[no-untyped-def]
    """Weighted max-min fair rates of activities in one pool, none above its cap; O(k log k)."""
    rates = np.empty(len(weights))
    left, load = capacity, weights.sum()
    for i in np.argsort(caps / weights):
        rates[i] = min(caps[i], left * weights[i] / load) if load > 0.0 else caps[i]
        left = max(left - rates[i], 0.0)
        load -= weights[i]
    return rates


class Station(NamedTuple):
    """Jobs that share a rate equally, in virtual time: a job leaves when the service given to each since it came reaches its work."""

    #: [rate, most that one job gets, now, virtual time]
    state: np.ndarray
    jobs: Heap


def station(rate: float, capacity: int, most: float = np.inf) -> Station:
    """An empty station of `rate`, with room for `capacity` jobs at once; no job gets more than `most`."""
    if not (0.0 < rate < np.inf and most > 0.0):
        raise InputError(f"station: found rate {rate!r}, most {most!r}; expected numbers above 0")
    return Station(np.array([rate, most, 0.0, 0.0]), heap(capacity))


@njit(nogil=True, cache=True)
def speed(s):  # type: ignore[no-untyped-def]
    """Work a second that each job gets now."""
    n = s.jobs.held[0]
    return min(s.state[1], s.state[0] / n) if n > 0 else 0.0


@njit(nogil=True, cache=True)
def advance(s, now):  # type: ignore[no-untyped-def]
    """Let time pass to `now`, at or before the next departure."""
    s.state[3] += (now - s.state[2]) * speed(s)
    s.state[2] = now


@njit(nogil=True, cache=True)
def join(s, now, work, job):  # type: ignore[no-untyped-def]
    """Job number `job` comes with `work` to do; false when there is no room. O(log n)."""
    advance(s, now)
    return push(s.jobs, s.state[3] + work, 0, job)


@njit(nogil=True, cache=True)
def next_departure(s):  # type: ignore[no-untyped-def]
    """When the next job leaves if none comes; infinite when there is none."""
    if s.jobs.held[0] == 0:
        return np.inf
    return s.state[2] + max(s.jobs.time[0] - s.state[3], 0.0) / speed(s)


@njit(nogil=True, cache=True)
def depart(s):  # type: ignore[no-untyped-def]
    """Let time pass to the next departure; the job that leaves. O(log n)."""
    time = next_departure(s)
    virtual = s.jobs.time[0]
    s.state[2] = time
    # Not by adding up: what leaves has had exactly its work.
    s.state[3] = max(virtual, s.state[3])
    return pop(s.jobs)[2]


def processor_sharing(arrivals: np.ndarray, works: np.ndarray, rate: float, most: float = np.inf) -> np.ndarray:
    """When each job leaves a station that shares `rate` equally; `arrivals` do not decrease. O(n log n)."""
    at, todo = np.ascontiguousarray(arrivals, np.float64), np.ascontiguousarray(works, np.float64)
    if at.shape != todo.shape or at.ndim != 1:
        raise InputError(f"{len(at)} arrivals and {len(todo)} works; expected as many")
    if not (np.isfinite(at).all() and np.isfinite(todo).all() and (at >= 0).all() and (todo >= 0).all() and (np.diff(at) >= 0).all()):
        raise InputError("arrivals and works: expected numbers, 0 or more, arrivals that do not decrease")
    return _processor_sharing(at, todo, station(rate, max(len(at), 1), most))


@njit(nogil=True, cache=True)
def _processor_sharing(arrivals, works, s):  # type: ignore[no-untyped-def]
    out = np.empty(len(arrivals))
    for i in range(len(arrivals)):
        while next_departure(s) <= arrivals[i]:
            job = depart(s)
            out[job] = s.state[2]
        join(s, arrivals[i], works[i], i)
    while s.jobs.held[0] > 0:
        job = depart(s)
        out[job] = s.state[2]
    return out
