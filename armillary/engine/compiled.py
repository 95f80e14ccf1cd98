"""Building blocks for simulators that are Numba loops: an event heap, a shared pool, and a processor-sharing station.

All are plain arrays in named tuples, made outside with `heap(...)` and `station(...)` and used inside compiled loops with the functions
below. They give the same results as the event loop and its pools.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop


class Heap(NamedTuple):
    """Events (time, kind, sequence, payload), ordered by time, then by kind, then by insertion."""

    time: np.ndarray
    kind: np.ndarray
    sequence: np.ndarray
    payload: np.ndarray
    #: [number of events in the heap, number of events ever inserted]
    held: np.ndarray


def heap(capacity: int) -> Heap:
    """An empty heap with room for `capacity` events."""
    if isinstance(capacity, bool) or not hasattr(capacity, "__index__") or not 1 <= capacity.__index__() <= 1 << 32:
        raise InputError(f"capacity: found {capacity!r}; expected a whole number from 1 to 2^32")
    n = int(capacity)
    return Heap(np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(2, np.int64))


@loop
def push(h, time, kind, payload):  # type: ignore[no-untyped-def]
    """Inserts an event; returns false if there is no room."""
    place = h.held[0]
    if place >= len(h.time):
        return False
    sequence = h.held[1]
    h.held[0] += 1
    h.held[1] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if not (time < h.time[parent] or (time == h.time[parent] and kind < h.kind[parent])):
            # At equal time and kind, the parent was inserted first.
            break
        _move(h, parent, place)
        place = parent
    h.time[place], h.kind[place], h.sequence[place], h.payload[place] = time, kind, sequence, payload
    return True


@loop
def pop(h):  # type: ignore[no-untyped-def]
    """Removes the first event and returns its (time, kind, payload), or (inf, -1, -1) if there is none."""
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


@loop
def _before(h, i, j):  # type: ignore[no-untyped-def]
    if h.time[i] != h.time[j]:
        return h.time[i] < h.time[j]
    if h.kind[i] != h.kind[j]:
        return h.kind[i] < h.kind[j]
    return h.sequence[i] < h.sequence[j]


@loop
def _move(h, source, target):  # type: ignore[no-untyped-def]
    h.time[target], h.kind[target] = h.time[source], h.kind[source]
    h.sequence[target], h.payload[target] = h.sequence[source], h.payload[source]


@loop
def share(capacity, weights, caps):  # type: ignore[no-untyped-def]
    """Weighted max-min fair rates of activities in one pool, none of them above its cap, in O(k log k)."""
    rates = np.empty(len(weights))
    left, load = capacity, weights.sum()
    for i in np.argsort(caps / weights):
        rates[i] = min(caps[i], left * weights[i] / load) if load > 0.0 else caps[i]
        left = max(left - rates[i], 0.0)
        load -= weights[i]
    return rates


class Station(NamedTuple):
    """Jobs that share a rate equally, in virtual time: a job leaves when the service per job since its arrival reaches its work."""

    #: [rate, largest rate of one job, now, virtual time]
    state: np.ndarray
    jobs: Heap


def station(rate: float, capacity: int, most: float = np.inf) -> Station:
    """An empty station with rate `rate` and room for `capacity` jobs at a time; no job gets more than `most`."""
    if not (0.0 < rate < np.inf and most > 0.0):
        raise InputError(f"station: found rate {rate!r}, most {most!r}; expected numbers above 0")
    return Station(np.array([rate, most, 0.0, 0.0]), heap(capacity))


@loop
def speed(s):  # type: ignore[no-untyped-def]
    """The work per second that each job gets now."""
    n = s.jobs.held[0]
    return min(s.state[1], s.state[0] / n) if n > 0 else 0.0


@loop
def advance(s, now):  # type: ignore[no-untyped-def]
    """Advances time to `now`, which is at or before the next departure."""
    s.state[3] += (now - s.state[2]) * speed(s)
    s.state[2] = now


@loop
def set_rate(s, now, rate):  # type: ignore[no-untyped-def]
    """Changes the rate that the jobs share from `now` on, which is at or before the next departure."""
    advance(s, now)
    s.state[0] = rate


@loop
def join(s, now, work, job):  # type: ignore[no-untyped-def]
    """Job number `job` arrives with `work` to do; returns false if there is no room. O(log n)."""
    advance(s, now)
    return push(s.jobs, s.state[3] + work, 0, job)


@loop
def next_departure(s):  # type: ignore[no-untyped-def]
    """When the next job leaves if no other arrives; infinite if there is no job."""
    if s.jobs.held[0] == 0:
        return np.inf
    return s.state[2] + max(s.jobs.time[0] - s.state[3], 0.0) / speed(s)


@loop
def depart(s):  # type: ignore[no-untyped-def]
    """Advances time to the next departure and returns the job that leaves. O(log n)."""
    time = next_departure(s)
    virtual = s.jobs.time[0]
    s.state[2] = time
    # The virtual time is set, not accumulated, because the job that leaves has received exactly its work.
    s.state[3] = max(virtual, s.state[3])
    return pop(s.jobs)[2]


def processor_sharing(arrivals: np.ndarray, works: np.ndarray, rate: float, most: float = np.inf) -> np.ndarray:
    """When each job leaves a station that shares `rate` equally; `arrivals` must not decrease. O(n log n)."""
    at, todo = np.ascontiguousarray(arrivals, np.float64), np.ascontiguousarray(works, np.float64)
    if at.shape != todo.shape or at.ndim != 1:
        raise InputError(f"{len(at)} arrivals and {len(todo)} works; expected the same number")
    if not (np.isfinite(at).all() and np.isfinite(todo).all() and (at >= 0).all() and (todo >= 0).all() and (np.diff(at) >= 0).all()):
        raise InputError("arrivals and works: expected numbers of 0 or more, and arrivals that do not decrease")
    return _processor_sharing(at, todo, station(rate, max(len(at), 1), most))


@loop
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
