"""Many processor-sharing stations in flat arrays, for Numba loops over networks of queues.

Each is what `compiled.Station` is: jobs share a rate equally, none gets more than its station's most, and a job leaves when the service
per job since its arrival reaches its work. A tournament over the stations finds the next departure of all in O(log stations).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from armillary.errors import InputError
from armillary.kernels import part

Array = np.ndarray[Any, Any]


class Stations(NamedTuple):
    """`jobs[first[i] : first[i] + held[i]]` is the heap of station i, ordered by the virtual time `leaves` at which a job is done."""

    rate: Array
    most: Array
    now: Array
    virtual: Array
    #: Work done since the beginning.
    done: Array
    held: Array
    first: Array
    leaves: Array
    jobs: Array
    #: The next departure of each station, infinite where it has no job (and up to a power of two); and the tournament over them.
    departs: Array
    winner: Array


def stations(rates: Array, rooms: Array, most: float = np.inf) -> Stations:
    """Empty stations with these rates, and room for so many jobs each; no job gets more than `most`."""
    rate, room = np.array(rates, np.float64), np.asarray(rooms, np.int64)
    n = len(rate)
    if n == 0 or room.shape != (n,) or not ((rate > 0) & (rate < np.inf)).all() or not most > 0:
        raise InputError("stations: expected rates above 0, one room per rate, and a most above 0")
    if not (room >= 1).all() or int(room.sum()) > 1 << 32:
        raise InputError("stations: expected rooms of at least 1, and at most 2^32 in all")
    first = np.concatenate(([0], np.cumsum(room)))
    places = 1 << max(1, (n - 1).bit_length())
    winner = np.zeros(2 * places, np.int64)
    winner[places:] = np.arange(places)
    for node in range(places - 1, 0, -1):
        # Each node stands for a station below it, so that it is replayed whenever its winner changes.
        winner[node] = winner[2 * node]
    return Stations(
        rate, np.full(n, float(most)), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, np.int64), first,
        np.empty(int(first[-1])), np.empty(int(first[-1]), np.int64), np.full(places, np.inf), winner,
    )  # fmt: skip


@part
def advance_at(s: Any, i: int, now: float) -> None:
    """Advances station i to `now`, which is at or before its next departure."""
    n = s.held[i]
    if n > 0:
        each = min(s.most[i], s.rate[i] / n)
        passed = now - s.now[i]
        s.virtual[i] += passed * each
        s.done[i] += passed * each * n
    s.now[i] = now


@part
def _retime(s: Any, i: int) -> None:
    """Computes the next departure of station i anew and replays its matches."""
    n = s.held[i]
    if n > 0:
        each = min(s.most[i], s.rate[i] / n)
        s.departs[i] = s.now[i] + max(s.leaves[s.first[i]] - s.virtual[i], 0.0) / each
    else:
        s.departs[i] = np.inf
    node = (len(s.winner) // 2 + i) >> 1
    while node >= 1:
        left, right = s.winner[2 * node], s.winner[2 * node + 1]
        s.winner[node] = right if s.departs[right] < s.departs[left] else left
        node >>= 1


@part
def join_at(s: Any, i: int, now: float, work: float, job: int) -> bool:
    """Job number `job` arrives at station i with `work` to do; false if there is no room."""
    if s.held[i] >= s.first[i + 1] - s.first[i]:
        return False
    advance_at(s, i, now)
    start, place = s.first[i], s.held[i]
    s.held[i] += 1
    leaves = s.virtual[i] + work
    while place > 0:
        parent = (place - 1) >> 1
        if s.leaves[start + parent] <= leaves:
            break
        s.leaves[start + place], s.jobs[start + place] = s.leaves[start + parent], s.jobs[start + parent]
        place = parent
    s.leaves[start + place], s.jobs[start + place] = leaves, job
    _retime(s, i)
    return True


@part
def depart_at(s: Any, i: int) -> int:
    """Advances station i to its next departure and returns the job that leaves."""
    start = s.first[i]
    n = s.held[i]
    each = min(s.most[i], s.rate[i] / n)
    s.done[i] += (s.departs[i] - s.now[i]) * each * n
    s.now[i] = s.departs[i]
    # The virtual time is set, not accumulated, because the job that leaves has received exactly its work.
    s.virtual[i] = max(s.leaves[start], s.virtual[i])
    job = s.jobs[start]
    n -= 1
    s.held[i] = n
    last, moved = s.leaves[start + n], s.jobs[start + n]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        if child + 1 < n and s.leaves[start + child + 1] < s.leaves[start + child]:
            child += 1
        if s.leaves[start + child] >= last:
            break
        s.leaves[start + place], s.jobs[start + place] = s.leaves[start + child], s.jobs[start + child]
        place = child
    s.leaves[start + place], s.jobs[start + place] = last, moved
    if n == 0:
        s.virtual[i] = 0.0
    _retime(s, i)
    return int(job)


@part
def set_rate_at(s: Any, i: int, now: float, rate: float) -> None:
    """Changes the rate of station i from `now` on."""
    advance_at(s, i, now)
    s.rate[i] = rate
    _retime(s, i)
