"""Routers: which replica takes a request."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.kernels import kernel, part

from .paging import hits
from .state import (
    ADAPTER,
    DECODE,
    KNOWN,
    NOTHING,
    PAUSED,
    ROLE,
    RUNS,
    SIZE,
    SLOT,
    WAITS,
)  # fmt: skip

ROUTERS = ("round-robin", "random", "least-requests", "least-tokens", "power-of-two", "session", "prefix", "adapter", "weighted", "custom")
(ROUND_ROBIN, RANDOM, LEAST_REQUESTS, LEAST_TOKENS, POWER_OF_TWO, SESSION, PREFIX, ADAPTER_THERE, WEIGHTED, CUSTOM) = range(10)


class Routing(NamedTuple):
    """What the router knows: the loads as it last saw them."""

    kind: int
    staleness_s: float
    seed: int
    weight: np.ndarray  # float64 [replica]
    tokens: np.ndarray  # int64 [replica], now
    seen_tokens: np.ndarray  # int64 [replica]
    seen_requests: np.ndarray  # int64 [replica]
    seen_at: np.ndarray  # float64 [1], s
    most_waiting: int  # no request is admitted while this many wait in total; 0 means no limit


@part
def random(seed, a, b):
    """A pseudorandom number in [0, 1) for every (seed, a, b)."""
    x = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(a) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(b) + np.uint64(1)
    for _ in range(2):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return np.float64(x >> np.uint64(11)) / 9007199254740992.0


@part
def _open(s, r):
    return s.eng[r, PAUSED] == 0 and s.eng[r, ROLE] != DECODE


@part
def _least(s, load):
    best = np.int64(NOTHING)
    for r in range(s.eng.shape[0]):
        if _open(s, r) and (best == NOTHING or load[r] < load[best]):
            best = r
    return best


@kernel
def route(s, f, g, q, now):
    """The replica that takes a sequence, or NOTHING if none is open."""
    count = s.eng.shape[0]
    if now - g.seen_at[0] >= g.staleness_s:
        for r in range(count):
            g.seen_tokens[r] = g.tokens[r]
            g.seen_requests[r] = s.eng[r, RUNS] + s.eng[r, WAITS]
        g.seen_at[0] = now
    opened = 0
    for r in range(count):
        opened += _open(s, r)
    if opened == 0:
        return NOTHING
    if g.kind == LEAST_REQUESTS:
        return _least(s, g.seen_requests)
    if g.kind == LEAST_TOKENS:
        return _least(s, g.seen_tokens)
    if g.kind == PREFIX or g.kind == ADAPTER_THERE:
        best, score = np.int64(NOTHING), np.int64(0)
        low, high = g.seen_requests[0], g.seen_requests[0]
        for r in range(count):
            low, high = min(low, g.seen_requests[r]), max(high, g.seen_requests[r])
            if not _open(s, r):
                continue
            if g.kind == PREFIX:
                first = s.first_name[q]
                value, _ = hits(s, r, s.names, first, min((s.seq[q, KNOWN] - 1) // s.eng[r, SIZE], s.first_name[q + 1] - first))
            else:
                value = np.int64(s.seq[q, ADAPTER] != NOTHING and s.adapters[r, s.seq[q, ADAPTER], SLOT] != NOTHING)
            if value > score or (value == score and value > 0 and g.seen_tokens[r] < g.seen_tokens[best]):
                best, score = r, value
        if best == NOTHING or (high - low > 32 and high > 1.1 * low):
            return _least(s, g.seen_tokens)
        return best
    if g.kind == ROUND_ROBIN:
        nth = f.state[1] % opened
        f.state[1] += 1
    elif g.kind == SESSION:
        nth = np.int64(random(g.seed, np.int64(f.session[q]), np.int64(7)) * opened)
    elif g.kind == WEIGHTED:
        total = 0.0
        for r in range(count):
            total += g.weight[r] * _open(s, r)
        left = random(g.seed, q, np.int64(11)) * total
        best = np.int64(NOTHING)
        for r in range(count):
            if _open(s, r) and g.weight[r] > 0 and left >= 0.0:
                best = r
                left -= g.weight[r]
        return best
    else:
        nth = np.int64(random(g.seed, q, np.int64(3)) * opened)
    one = _nth_open(s, nth)
    if g.kind == POWER_OF_TWO:
        other = _nth_open(s, np.int64(random(g.seed, q, np.int64(5)) * opened))
        if g.seen_requests[other] < g.seen_requests[one]:
            return other
    return one


@part
def _nth_open(s, nth):
    for r in range(s.eng.shape[0]):
        if _open(s, r):
            if nth == 0:
                return r
            nth -= 1
    return NOTHING
