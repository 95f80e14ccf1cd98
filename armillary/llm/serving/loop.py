"""The compiled event loop of a fleet: arrivals, routing, iterations and tokens.

There are two kinds of event: a sequence arrives, and an iteration of a replica ends. At equal times arrivals come first, so that an
iteration that starts then can include them. The loop returns when its caller has to decide something; the `STOP_…` codes say what.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.engine.compiled import Heap, pop, push
from armillary.kernels import kernel, part

from .batching import give_back, grow, plan, wait_last
from .routing import CUSTOM, random, route
from .state import (
    ADAPTER,
    ARRIVED,
    ASYNC_LOADS,
    BEHIND_IT,
    BLOCK_S,
    BUSY_S,
    CAPACITY,
    CHOICE,
    CHOSEN,
    COMPUTED,
    DISTINCT,
    DONE_AT,
    END,
    EXTRA,
    FINISHED,
    FIRST,
    FIRST_TOKEN,
    FREE,
    GONE,
    HELD,
    HOME,
    KNOWN,
    LANE,
    LAST_TOKEN,
    MOVING,
    NOTHING,
    OUTPUT,
    PAUSED,
    POLICY,
    PREEMPTED,
    PREFILL,
    PROMPT,
    REPEAT,
    ROLE,
    RUN_LIST,
    RUNNING,
    RUNS,
    SHARES,
    SIZE,
    SLOPE,
    START,
    STATUS,
    STEP,
    TOKENS,
    WAITS,
)  # fmt: skip

#: Why the loop returned.
STOP_TIME, STOP_ROUTE, STOP_HANDOVER, STOP_STUCK = 0, 1, 2, 3
#: The bins of the histogram of gaps between tokens: 32 per doubling, from 2⁻³⁰ s.
GAP_BINS = 32 * 60
STATIC = 3


class Prices(NamedTuple):
    """Seconds of an iteration, one row per replica; see `CostArrays`."""

    body: np.ndarray  # float64 [replica, tokens]
    head: np.ndarray  # float64 [replica, sequences]
    rate: np.ndarray  # float64 [replica, 9]: pair, context, computed, adapter, rank·token, host, running, waiting, adapter·token
    rank: np.ndarray  # float64 [adapter]


class Feed(NamedTuple):
    """The arrivals that are still to come."""

    time: np.ndarray  # float64 [n], s
    order: np.ndarray  # int32: those whose time is known, by time
    state: np.ndarray  # int64: [next of `order`, next replica in turn, the sequence that stopped the loop, its replica]
    later: Heap  # arrivals whose time became known during the run
    follower: np.ndarray  # int32 [n]: the request that follows this one, or NOTHING
    think: np.ndarray  # float64 [n], s: the delay after this one is finished
    session: np.ndarray  # int32 [n]


class Measures(NamedTuple):
    """What happened."""

    token_at: np.ndarray  # int64 [n + 1]: where the token times of a sequence begin; empty if they are not kept
    token_time: np.ndarray  # float64, s
    gap: np.ndarray  # int64 [GAP_BINS]
    log: np.ndarray  # float64 [lines, 5]: replica, begin, end, tokens, sequences
    logged: np.ndarray  # int64: [lines, iterations per line kept, iterations seen]
    acceptance: np.ndarray  # float64 [draft]: chance that the draft at a position is right
    segments: int  # 1 if iterations between two events are summed


@part
def _read(table, r, x):
    last = table.shape[1] - 1
    if x <= last:
        return table[r, x]
    return table[r, last] + (x - last) * (table[r, last] - table[r, last - 1])


@part
def _price(s, m, prices, r):
    """(seconds of the chosen iteration, seconds that one more token of context per sequence adds, its tokens, whether all are decodes)."""
    total = sequences = context = before = np.int64(0)
    pairs = 0.0
    rank_tokens = 0.0
    plain = True
    for k in range(s.eng[r, CHOSEN]):
        q, n = s.lists[r, CHOICE, k], np.int64(s.lists[r, SHARES, k])
        c = np.int64(s.seq[q, COMPUTED])
        total += n
        before += c
        if s.seq[q, ADAPTER] != NOTHING:
            rank_tokens += n * prices.rank[s.seq[q, ADAPTER]]
        if s.seq[q, KNOWN] > s.seq[q, PROMPT] and c == s.seq[q, KNOWN] - 1:
            context += c + n
            sequences += n
            plain = plain and n == 1 and s.seq[q, STATUS] == RUNNING
        else:
            pairs += np.float64(n) * c + 0.5 * np.float64(n) * (n + 1)
            sequences += 1
            plain = False
    rate = prices.rate[r]
    seconds = (
        _read(prices.body, r, total) + _read(prices.head, r, sequences) + rate[0] * pairs + rate[1] * context + rate[2] * before
        + rate[3] * s.eng[r, DISTINCT] + rate[4] * rank_tokens + rate[5] + rate[6] * s.eng[r, RUNS] + rate[7] * s.eng[r, WAITS]
        + rate[8] * s.eng[r, DISTINCT] * total + s.clock[r, EXTRA]
    )  # fmt: skip
    return seconds, (rate[1] + rate[2]) * s.eng[r, CHOSEN], total, plain


@part
def _sum_s(first, slope, k):
    """Seconds of k iterations, each of which takes `slope` longer than the one before."""
    return k * first + slope * (0.5 * k * (k - 1))


@part
def _demand(s, r, k):
    """The blocks that k more tokens of every running sequence need in addition to those that they hold."""
    size = s.eng[r, SIZE]
    need = 0
    for i in range(s.eng[r, RUNS]):
        q = s.lists[r, RUN_LIST, i]
        need += max(0, (s.seq[q, COMPUTED] + k + size - 1) // size - s.seq[q, HELD])
    return need


@kernel
def _stretch(s, r, now, first, slope, limit):
    """The number of iterations without a decision: until a sequence finishes, blocks run out, or something happens at `limit`."""
    k = np.int64(1) << 40
    for i in range(s.eng[r, RUNS]):
        q = s.lists[r, RUN_LIST, i]
        k = min(k, np.int64(s.seq[q, PROMPT]) + s.seq[q, OUTPUT] - s.seq[q, KNOWN])
    if _demand(s, r, k) > s.eng[r, FREE]:
        low, high = np.int64(1), k
        while high - low > 1:
            mid = (low + high) // 2
            if _demand(s, r, mid) > s.eng[r, FREE]:
                high = mid
            else:
                low = mid
        k = low
    if limit < np.inf and now + _sum_s(first, slope, k - 1) >= limit:
        low, high = np.int64(1), k
        while high - low > 1:
            mid = (low + high) // 2
            if now + _sum_s(first, slope, mid - 1) >= limit:
                high = mid
            else:
                low = mid
        k = low
    return k


@part
def _next_arrival(f):
    t = np.inf
    if f.state[0] < len(f.order):
        t = f.time[f.order[f.state[0]]]
    if f.later.held[0] > 0:
        t = min(t, f.later.time[0])
    return t


@kernel
def _log(m, r, begin, end, tokens, sequences):
    m.logged[2] += 1
    if m.logged[2] % m.logged[1] != 0 or m.log.shape[0] == 0:
        return
    if m.logged[0] == m.log.shape[0]:
        for i in range(m.log.shape[0] // 2):
            for c in range(5):
                m.log[i, c] = m.log[2 * i + 1, c]
        m.logged[0] = m.log.shape[0] // 2
        m.logged[1] *= 2
        if m.logged[2] % m.logged[1] != 0:
            return
    at = m.logged[0]
    m.log[at, 0] = r
    m.log[at, 1] = begin
    m.log[at, 2] = end
    m.log[at, 3] = tokens
    m.log[at, 4] = sequences
    m.logged[0] = at + 1


@kernel
def _start(s, f, prices, m, r, now, until):
    """Starts an iteration at `now`, or leaves the replica idle."""
    s.clock[r, START] = now
    s.clock[r, END] = np.inf
    s.eng[r, REPEAT] = 0
    s.eng[r, CHOSEN] = 0
    if s.eng[r, PAUSED] or s.eng[r, RUNS] + s.eng[r, WAITS] == 0:
        return True
    preempted = s.eng[r, PREEMPTED]
    plan(s, r)
    if s.eng[r, CHOSEN] == 0:
        if s.eng[r, ASYNC_LOADS] and s.clock[r, LANE] > now:
            s.clock[r, END] = s.clock[r, LANE]
            for a in range(s.ready.shape[1] - 1):
                if now < s.ready[r, a] < s.clock[r, END]:
                    s.clock[r, END] = s.ready[r, a]
            return True
        return s.eng[r, RUNS] + s.eng[r, WAITS] == 0
    seconds, slope, tokens, plain = _price(s, m, prices, r)
    k = np.int64(1)
    waits_for_load = s.eng[r, ASYNC_LOADS] and s.eng[r, WAITS] > 0
    if (
        m.segments
        and plain
        and not waits_for_load
        and s.eng[r, CHOSEN] == s.eng[r, RUNS]
        and s.eng[r, PREEMPTED] == preempted
        and s.clock[r, EXTRA] == 0.0
    ):
        k = _stretch(s, r, now, seconds, slope, min(_next_arrival(f), until))
        if k > 1:
            for i in range(s.eng[r, RUNS]):
                grow(s, s.lists[r, RUN_LIST, i], r, k)
    s.eng[r, REPEAT] = k
    s.clock[r, STEP] = seconds
    s.clock[r, SLOPE] = slope
    s.clock[r, END] = now + _sum_s(seconds, slope, k)
    s.eng[r, TOKENS] += tokens * k
    s.clock[r, BUSY_S] += s.clock[r, END] - now
    s.clock[r, BLOCK_S] += (s.clock[r, END] - now) * (s.eng[r, CAPACITY] - s.eng[r, FREE])
    _log(m, r, now, s.clock[r, END], tokens, s.eng[r, CHOSEN])
    return True


@part
def _bin(gap):
    if gap <= 0.0:
        return 0
    return min(GAP_BINS - 1, max(0, np.int64((np.log2(gap) + 30.0) * 32.0)))


@part
def _accepted(m, seed, q, r, known, n):
    """The number of the n - 1 drafts that are accepted before the first wrong one."""
    right = 0
    while right < n - 1 and random(seed, q, known * 64 + right) < m.acceptance[right]:
        right += 1
    return right


@kernel
def _finish(s, f, m, routing, q, r, now):
    s.seq[q, STATUS] = FINISHED
    s.when[q, DONE_AT] = now
    routing.tokens[r] -= s.seq[q, KNOWN]
    if s.eng[r, POLICY] != STATIC:
        give_back(s, q, r)
    then = f.follower[q]
    if then != NOTHING:
        f.time[then] = now + f.think[q]
        push(f.later, f.time[then], 0, then)


@kernel
def _end(s, f, m, routing, r, now):
    """Accounts for the tokens of an iteration that ends, and chains the sequences that a prefill replica has finished."""
    k = s.eng[r, REPEAT]
    gone = False
    handed = np.int64(NOTHING)
    steady = 0
    for i in range(s.eng[r, CHOSEN]):
        q, n = s.lists[r, CHOICE, i], s.lists[r, SHARES, i]
        if s.seq[q, STATUS] != RUNNING or s.seq[q, HOME] != r:
            continue
        decode = s.seq[q, KNOWN] > s.seq[q, PROMPT] and s.seq[q, COMPUTED] == s.seq[q, KNOWN] - 1
        out = np.int64(0)
        if decode:
            out = k
            if n > 1:
                out = 1 + _accepted(m, routing.seed, q, r, s.seq[q, KNOWN], n)
            out = min(out, np.int64(s.seq[q, PROMPT]) + s.seq[q, OUTPUT] - s.seq[q, KNOWN])
            s.seq[q, COMPUTED] += out
        else:
            s.seq[q, COMPUTED] += n
            if s.seq[q, COMPUTED] == s.seq[q, KNOWN]:
                out = 1
        if out == 0:
            continue
        if len(m.token_time) > 0:
            at = m.token_at[q] + s.seq[q, KNOWN] - s.seq[q, PROMPT]
            for j in range(out):
                m.token_time[at + j] = s.clock[r, START] + _sum_s(s.clock[r, STEP], s.clock[r, SLOPE], j + 1) if k > 1 else now
        if s.seq[q, KNOWN] == s.seq[q, PROMPT]:
            s.when[q, FIRST_TOKEN] = now
        elif s.when[q, LAST_TOKEN] == s.clock[r, START]:
            steady += 1
            if k == 1 and out > 1:
                m.gap[0] += out - 1
        else:
            begun = s.clock[r, STEP] if k > 1 else now - s.clock[r, START]
            m.gap[_bin(s.clock[r, START] + begun - s.when[q, LAST_TOKEN])] += 1
            if k == 1 and out > 1:
                m.gap[0] += out - 1
            for j in range(1, k):
                m.gap[_bin(s.clock[r, STEP] + j * s.clock[r, SLOPE])] += 1
        s.when[q, LAST_TOKEN] = now
        s.seq[q, KNOWN] += out
        routing.tokens[r] += out
        if s.seq[q, KNOWN] - s.seq[q, PROMPT] >= s.seq[q, OUTPUT]:
            _finish(s, f, m, routing, q, r, now)
            gone = True
        elif s.eng[r, ROLE] == PREFILL:
            s.seq[q, STATUS] = MOVING
            gone = True
            s.seq[q, BEHIND_IT] = handed
            handed = q
    if steady > 0:
        if k > 1:
            for j in range(k):
                m.gap[_bin(s.clock[r, STEP] + j * s.clock[r, SLOPE])] += steady
        else:
            m.gap[_bin(now - s.clock[r, START])] += steady
    if gone and s.eng[r, POLICY] != STATIC:
        n = 0
        for i in range(s.eng[r, RUNS]):
            q = s.lists[r, RUN_LIST, i]
            if s.seq[q, STATUS] == RUNNING:
                s.lists[r, RUN_LIST, n] = q
                n += 1
        s.eng[r, RUNS] = n
    return handed


@part
def arrive(s, f, m, g, q, r, now):
    """A sequence arrives at replica `r`, which wakes up if it is idle."""
    s.seq[q, HOME] = r
    wait_last(s, q, r)
    g.tokens[r] += s.seq[q, KNOWN]
    if s.clock[r, END] == np.inf and not s.eng[r, PAUSED]:
        s.clock[r, END] = now
        s.eng[r, REPEAT] = 0
        s.eng[r, CHOSEN] = 0


@kernel
def advance(s, f, prices, m, g, now, until):
    """Advances simulated time from `now` to `until` (seconds); returns (why it stopped, the time)."""
    replicas = s.eng.shape[0]
    while True:
        t_arrival = _next_arrival(f)
        if g.most_waiting > 0:
            waits = np.int64(0)
            for other in range(replicas):
                waits += s.eng[other, WAITS]
            if waits >= g.most_waiting:
                t_arrival = np.inf
        r = np.int64(0)
        for other in range(1, replicas):
            if s.clock[other, END] < s.clock[r, END]:
                r = other
        t = min(t_arrival, s.clock[r, END])
        if t > until or t == np.inf:
            return STOP_TIME, max(now, min(until, t))
        now = max(now, t)
        if t_arrival <= s.clock[r, END]:
            if f.state[0] < len(f.order) and f.time[f.order[f.state[0]]] == t_arrival:
                q = np.int64(f.order[f.state[0]])
                f.state[0] += 1
            else:
                _, _, q = pop(f.later)
            if s.seq[q, STATUS] == GONE:
                continue
            if s.when[q, ARRIVED] < 0.0:
                s.when[q, ARRIVED] = t_arrival
            home = np.int64(s.seq[q, HOME])
            if home == NOTHING:
                if g.kind == CUSTOM:
                    f.state[2] = q
                    return STOP_ROUTE, now
                home = np.int64(route(s, f, g, q, now))
                if home == NOTHING:
                    f.state[2] = q
                    return STOP_ROUTE, now
            arrive(s, f, m, g, q, home, now)
            continue
        handed = _end(s, f, m, g, r, now)
        if not _start(s, f, prices, m, r, now, until):
            f.state[2] = s.eng[r, FIRST] if s.eng[r, RUNS] == 0 else s.lists[r, RUN_LIST, 0]
            f.state[3] = r
            return STOP_STUCK, now
        if handed != NOTHING:
            f.state[2] = handed
            f.state[3] = r
            return STOP_HANDOVER, now
