"""The compiled loop: calls take threads, compute under processor sharing, make calls of their own, and hold their threads until answered.

A call that finds all threads of a service taken waits in its queue, while its caller holds a thread of its own: backpressure. A request
that is older than the timeout has failed. Its calls that wait are answered at once when their turn comes and its calls that compute make
no further ones, as with deadlines that travel with calls; what is being computed is computed to its end.

Invariants: `used[s]` calls hold a thread of service s, and each of them computes or waits for an answer. A call is in exactly one of: a
station, a queue, waiting for `pending` answers, or free. Every place in `answering` is a different call.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from armillary.engine.stations import Stations, advance_at, depart_at, join_at, set_rate_at
from armillary.kernels import kernel, part

Array = np.ndarray[Any, Any]
#: Latencies of calls are counted in buckets of an eighth of an octave, from 0.1 ms on.
BUCKETS, FIRST_S, PER_OCTAVE = 160, 1e-4, 8
#: Why a run ended early.
FINE, NO_ROOM, TOO_MANY_INSIDE = 0, 1, 2
#: Indices of `counts`: the next request, answered ones, calls made, free call slots, requests inside.
NEXT, ANSWERED, CALLS, FREE, INSIDE = range(5)
MOST_INSIDE = 1_000_000
NONE = -1


class Trees(NamedTuple):
    """`Flat` without what only planners need."""

    service: Array
    first_group: Array
    first_call: Array
    calls: Array
    root: Array


class Requests(NamedTuple):
    """Requests in the order of arrival: time, type, CPU seconds of their calls from `first` on, and the end (NaN until then)."""

    arrival: Array
    type: Array
    first: Array
    demand: Array
    end: Array
    #: Requests in the order of their answers.
    answered: Array


class Calls(NamedTuple):
    """Calls under way, by slot."""

    call: Array
    request: Array
    parent: Array
    group: Array
    pending: Array
    began: Array
    #: The next call in the same queue, or the next free slot.
    next: Array
    holds: Array


class Services(NamedTuple):
    """Threads, queues and counts of each service."""

    threads: Array
    used: Array
    head: Array
    tail: Array
    queued: Array
    #: Thread-seconds taken, and until when they are counted.
    taken: Array
    since: Array
    arrivals: Array
    latencies: Array


@part
def _count(x: Services, s: int, now: float) -> None:
    x.taken[s] += x.used[s] * (now - x.since[s])
    x.since[s] = now


@part
def _compute(r: Requests, c: Calls, t: Trees, stations: Stations, root: Array, v: int, s: int, now: float) -> bool:
    request = c.request[v]
    place = r.first[request] + c.call[v] - t.root[r.type[request]]
    return join_at(stations, s, now, r.demand[place], v)


@part
def _enter(r: Requests, c: Calls, x: Services, t: Trees, stations: Stations, v: int, now: float) -> bool:
    """A call arrives at its service: it gets a thread, or waits."""
    s = t.service[c.call[v]]
    c.began[v] = now
    c.holds[v] = 0
    x.arrivals[s] += 1
    if x.used[s] < x.threads[s]:
        _count(x, s, now)
        x.used[s] += 1
        c.holds[v] = 1
        return _compute(r, c, t, stations, t.root, v, s, now)
    c.next[v] = NONE
    if x.tail[s] == NONE:
        x.head[s] = v
    else:
        c.next[x.tail[s]] = v
    x.tail[s] = v
    x.queued[s] += 1
    return True


@part
def _new(c: Calls, counts: Array, call: int, request: int, parent: int) -> int:
    v = counts[FREE]
    if v == NONE:
        return NONE
    counts[FREE] = c.next[v]
    counts[CALLS] += 1
    c.call[v], c.request[v], c.parent[v], c.group[v], c.pending[v] = call, request, parent, 0, 0
    return int(v)


@kernel
def run(
    r: Requests, c: Calls, x: Services, t: Trees, stations: Stations, counts: Array, answering: Array, timeout: float, until: float
) -> int:  # fmt: skip
    """Plays all events before `until`; 0, or why it could not."""
    many = len(r.arrival)
    while True:
        s = stations.winner[1]
        leaves = stations.departs[s]
        arrives = r.arrival[counts[NEXT]] if counts[NEXT] < many else math.inf
        if min(leaves, arrives) >= until:
            break
        if arrives <= leaves:
            i = counts[NEXT]
            counts[NEXT] += 1
            counts[INSIDE] += 1
            if counts[INSIDE] > MOST_INSIDE:
                return TOO_MANY_INSIDE
            v = _new(c, counts, t.root[r.type[i]], i, NONE)
            if v == NONE or not _enter(r, c, x, t, stations, v, arrives):
                return NO_ROOM
            continue
        now = leaves
        answering[0] = depart_at(stations, s)
        stack = 1
        while stack > 0:
            stack -= 1
            v = answering[stack]
            call, request = c.call[v], c.request[v]
            groups = t.first_group[call + 1] - t.first_group[call]
            late = now > r.arrival[request] + timeout
            if c.holds[v] and c.group[v] < groups and not late:
                # What it has to wait for comes next.
                g = t.first_group[call] + c.group[v]
                c.group[v] += 1
                c.pending[v] = t.first_call[g + 1] - t.first_call[g]
                for k in range(t.first_call[g], t.first_call[g + 1]):
                    below = _new(c, counts, t.calls[k], request, v)
                    if below == NONE or not _enter(r, c, x, t, stations, below, now):
                        return NO_ROOM
                if c.pending[v] > 0:
                    continue
                answering[stack] = v
                stack += 1
                continue
            own = t.service[call]
            spent = now - c.began[v]
            bucket = int(PER_OCTAVE * math.log2(spent / FIRST_S)) if spent > FIRST_S else 0
            x.latencies[own, min(bucket, BUCKETS - 1)] += 1
            if c.holds[v]:
                _count(x, own, now)
                x.used[own] -= 1
            above = c.parent[v]
            c.next[v] = counts[FREE]
            counts[FREE] = v
            if above == NONE:
                r.end[request] = now
                r.answered[counts[ANSWERED]] = request
                counts[ANSWERED] += 1
                counts[INSIDE] -= 1
            else:
                c.pending[above] -= 1
                if c.pending[above] == 0:
                    answering[stack] = above
                    stack += 1
            while x.head[own] != NONE and x.used[own] < x.threads[own]:
                first = x.head[own]
                x.head[own] = c.next[first]
                if x.head[own] == NONE:
                    x.tail[own] = NONE
                x.queued[own] -= 1
                if now > r.arrival[c.request[first]] + timeout:
                    answering[stack] = first
                    stack += 1
                    continue
                _count(x, own, now)
                x.used[own] += 1
                c.holds[first] = 1
                if not _compute(r, c, t, stations, t.root, first, own, now):
                    return NO_ROOM
    for s in range(len(x.used)):
        advance_at(stations, s, until)
        _count(x, s, until)
    return FINE


@kernel
def resize(
    r: Requests, c: Calls, x: Services, t: Trees, stations: Stations, rates: Array, threads: Array, now: float
) -> int:  # fmt: skip
    """Gives services other rates and threads; calls that wait take threads that are new."""
    for s in range(len(rates)):
        if rates[s] != stations.rate[s]:
            set_rate_at(stations, s, now, rates[s])
        x.threads[s] = threads[s]
        while x.head[s] != NONE and x.used[s] < x.threads[s]:
            first = x.head[s]
            x.head[s] = c.next[first]
            if x.head[s] == NONE:
                x.tail[s] = NONE
            x.queued[s] -= 1
            _count(x, s, now)
            x.used[s] += 1
            c.holds[first] = 1
            if not _compute(r, c, t, stations, t.root, first, s, now):
                return NO_ROOM
    return FINE


@kernel
def quantiles(counts: Array, wanted: Array, out: Array) -> None:
    """The quantiles `wanted` of each row of latency counts, in seconds: upper edges of buckets; 0 where nothing was counted."""
    for s in range(counts.shape[0]):
        total = 0
        for b in range(counts.shape[1]):
            total += counts[s, b]
        for q in range(len(wanted)):
            out[s, q] = 0.0
            need = wanted[q] * total
            seen = 0
            if total > 0:
                for b in range(counts.shape[1]):
                    seen += counts[s, b]
                    if seen >= need:
                        out[s, q] = FIRST_S * 2.0 ** ((b + 1) / PER_OCTAVE)
                        break
