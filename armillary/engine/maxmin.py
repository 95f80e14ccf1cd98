"""Computes weighted max-min fair rates and the next activity to finish, in Numba loops over arrays.

Activities a with weight p_a, rate cap c_a and usage u_{a,r} of pools r with capacity C_r get the rates x that maximise the smallest x_a /
p_a, then the next smallest, and so on, subject to sum_a u_{a,r} x_a <= C_r and x_a <= c_a. The method is progressive filling. The pool (or
cap) with the smallest fill level (C_r - fixed) / sum(u p) over its unfixed activities fixes those activities; the pools that they use are
updated, and the step repeats. Levels only rise, so a heap of stale levels is enough: a level that comes out too early goes back in. Only
the part that is connected to a change is solved again. A class of lower priority shares what the classes above it leave.

Activity a uses the pools `pool[a, :count]`, with usage `use[a, :count]`; `after` and `before` chain the places (a · width + k) of one pool
together, so that the pools of an activity and the activities of a pool can be walked without search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.kernels import loop

# Columns of `activity` (float64) and `state` (int64) of `System`.
WEIGHT, CAP, RATE, LEFT, SINCE, WORK, FINISH = range(7)
COUNT, MARK, CLASS, PLACE, ORDER = range(5)
# Columns of `chain` (int64) of `System`, by pool.
FIRST, SEEN, SLOT, KIND, DIRTY = range(5)
# Slots of `number` (int64).
STAMP, HEAPED, DIRTIED, SHIFT = range(4)
SHARED, FATPIPE = 0, 1
#: Remaining work below this fraction of the whole counts as done.
DONE = 1e-9
#: A rate that changes by less than this fraction is left as it is.
SAME = 1e-12
#: Remaining capacity below this fraction of a pool is rounding error.
NOISE = 1e-15


class System(NamedTuple):
    """Activities and pools as arrays; rows are reused."""

    activity: np.ndarray
    state: np.ndarray
    pool: np.ndarray
    use: np.ndarray
    after: np.ndarray
    before: np.ndarray
    capacity: np.ndarray
    chain: np.ndarray
    #: The activities by (finish, order), as a binary heap of rows.
    finishing: np.ndarray
    dirty: np.ndarray
    number: np.ndarray


def system(activities: int, pools: int, width: int) -> System:
    """A system with room for the given number of activities, each in up to `width` pools (a power of two)."""
    state = np.zeros((activities, 5), np.int64)
    state[:, PLACE] = -1
    chain = np.zeros((pools, 5), np.int64)
    chain[:, FIRST] = chain[:, SLOT] = -1
    number = np.zeros(4, np.int64)
    number[SHIFT] = width.bit_length() - 1
    return System(
        np.zeros((activities, 7)),
        state,
        np.full((activities, width), -1, np.int32),
        np.zeros((activities, width)),
        np.full((activities, width), -1, np.int64),
        np.full((activities, width), -1, np.int64),
        np.zeros(pools),
        chain,
        np.zeros(activities, np.int64),
        np.zeros(pools, np.int64),
        number,
    )


def enlarged(old: System, activities: int, pools: int, width: int) -> System:
    """The same system with more room."""
    new = system(activities, pools, width)
    n, p, w = len(old.activity), len(old.capacity), old.pool.shape[1]
    new.activity[:n], new.state[:n] = old.activity, old.state
    new.pool[:n, :w], new.use[:n, :w] = old.pool, old.use
    # The numbers of places depend on the width.
    for fresh, stale in ((new.after, old.after), (new.before, old.before)):
        fresh[:n, :w] = np.where(stale < 0, -1, stale // w * width + stale % w)
    first = old.chain[:, FIRST]
    new.capacity[:p], new.chain[:p] = old.capacity, old.chain
    new.chain[:p, FIRST] = np.where(first < 0, -1, first // w * width + first % w)
    new.finishing[:n], new.dirty[:p], new.number[:SHIFT] = old.finishing, old.dirty, old.number[:SHIFT]
    return new


@loop
def touch(s, r):  # type: ignore[no-untyped-def]
    """Marks everything that is connected to pool r to be solved again."""
    if s.chain[r, DIRTY] == 0:
        s.chain[r, DIRTY] = 1
        s.dirty[s.number[DIRTIED]] = r
        s.number[DIRTIED] += 1


@loop
def begin(s, now, rows, orders, classes, counts, pools, uses, numbers):  # type: ignore[no-untyped-def]
    """Inserts activities: `numbers` holds the (weight, cap, work) of each, and `pools` and `uses` hold those of all activities,
    concatenated.
    """
    shift = s.number[SHIFT]
    low = (1 << shift) - 1
    at = 0
    for i in range(len(rows)):
        a = rows[i]
        s.activity[a, WEIGHT] = numbers[i, 0]
        s.activity[a, CAP] = numbers[i, 1]
        s.activity[a, WORK] = numbers[i, 2]
        s.activity[a, LEFT] = numbers[i, 2]
        s.activity[a, RATE] = 0.0
        s.activity[a, SINCE] = now
        s.activity[a, FINISH] = np.inf
        s.state[a, COUNT] = counts[i]
        s.state[a, CLASS] = classes[i]
        s.state[a, ORDER] = orders[i]
        for k in range(counts[i]):
            r = pools[at]
            s.pool[a, k] = r
            s.use[a, k] = uses[at]
            at += 1
            place = (a << shift) + k
            first = s.chain[r, FIRST]
            s.after[a, k] = first
            s.before[a, k] = -1
            if first >= 0:
                s.before[first >> shift, first & low] = place
            s.chain[r, FIRST] = place
            touch(s, r)
        s.state[a, PLACE] = s.number[HEAPED]
        s.finishing[s.number[HEAPED]] = a
        s.number[HEAPED] += 1
        _rise(s, s.state[a, PLACE])


@loop
def end(s, a):  # type: ignore[no-untyped-def]
    """Removes activity a from its pools and from the heap."""
    shift = s.number[SHIFT]
    low = (1 << shift) - 1
    for k in range(s.state[a, COUNT]):
        r = s.pool[a, k]
        after, before = s.after[a, k], s.before[a, k]
        if before >= 0:
            s.after[before >> shift, before & low] = after
        else:
            s.chain[r, FIRST] = after
        if after >= 0:
            s.before[after >> shift, after & low] = before
        touch(s, r)
    s.state[a, COUNT] = 0
    place = s.state[a, PLACE]
    s.number[HEAPED] -= 1
    last = s.finishing[s.number[HEAPED]]
    if place != s.number[HEAPED]:
        s.finishing[place] = last
        s.state[last, PLACE] = place
        _rise(s, place)
        _sink(s, s.state[last, PLACE])
    s.state[a, PLACE] = -1


@loop
def _earlier(s, a, b):  # type: ignore[no-untyped-def]
    x, y = s.activity[a, FINISH], s.activity[b, FINISH]
    return x < y or (x == y and s.state[a, ORDER] < s.state[b, ORDER])


@loop
def _rise(s, place):  # type: ignore[no-untyped-def]
    a = s.finishing[place]
    while place > 0:
        parent = (place - 1) >> 1
        b = s.finishing[parent]
        if not _earlier(s, a, b):
            break
        s.finishing[place] = b
        s.state[b, PLACE] = place
        place = parent
    s.finishing[place] = a
    s.state[a, PLACE] = place


@loop
def _sink(s, place):  # type: ignore[no-untyped-def]
    size = s.number[HEAPED]
    a = s.finishing[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _earlier(s, s.finishing[child + 1], s.finishing[child]):
            child += 1
        b = s.finishing[child]
        if not _earlier(s, b, a):
            break
        s.finishing[place] = b
        s.state[b, PLACE] = place
        place = child
    s.finishing[place] = a
    s.state[a, PLACE] = place


@loop
def next_finish(s):  # type: ignore[no-untyped-def]
    """When the next activity finishes at the current rates; infinite if none does."""
    return s.activity[s.finishing[0], FINISH] if s.number[HEAPED] > 0 else np.inf


@loop
def finished(s, now, out):  # type: ignore[no-untyped-def]
    """Removes the activities that are done at `now`, writes their rows to `out`, which has room for all, and returns their number."""
    count = 0
    while s.number[HEAPED] > 0:
        a = s.finishing[0]
        early = s.activity[a, FINISH] - now
        if early > 0.0 and not early * s.activity[a, RATE] <= DONE * s.activity[a, WORK]:
            break
        end(s, a)
        out[count] = a
        count += 1
    return count


@loop
def solve(s, now, lone):  # type: ignore[no-untyped-def]
    """Solves for the rates of everything that is connected to a marked pool, and of the activities `lone`; returns when the next one
    finishes.
    """
    s.number[STAMP] += 1
    stamp = s.number[STAMP]
    shift = s.number[SHIFT]
    low = (1 << shift) - 1
    total = s.number[HEAPED]
    member = np.empty(total, np.int64)
    pools = np.empty(len(s.capacity), np.int64)
    members, found, looked = 0, 0, 0
    for i in range(s.number[DIRTIED]):
        r = s.dirty[i]
        s.chain[r, DIRTY] = 0
        s.chain[r, SEEN] = stamp
        pools[found] = r
        found += 1
    s.number[DIRTIED] = 0
    for i in range(len(lone)):
        a = lone[i]
        if s.state[a, PLACE] >= 0 and s.state[a, MARK] != stamp:
            s.state[a, MARK] = stamp
            member[members] = a
            members += 1
    expanded = 0
    while looked < found or expanded < members:
        while expanded < members:
            a = member[expanded]
            expanded += 1
            for k in range(s.state[a, COUNT]):
                r = s.pool[a, k]
                # Pools that can never bind do not connect activities.
                if s.chain[r, SEEN] != stamp and s.chain[r, KIND] == SHARED and s.capacity[r] < np.inf:
                    s.chain[r, SEEN] = stamp
                    pools[found] = r
                    found += 1
        if looked < found:
            place = s.chain[pools[looked], FIRST]
            looked += 1
            while place >= 0:
                a, k = place >> shift, place & low
                if s.state[a, MARK] != stamp:
                    s.state[a, MARK] = stamp
                    member[members] = a
                    members += 1
                place = s.after[a, k]
    if members > 0:
        rates = np.full(members, -1.0)
        _fill(s, member[:members], pools[:found], rates)
        _apply(s, now, member[:members], rates)
    return next_finish(s)


@loop
def _apply(s, now, member, rates):  # type: ignore[no-untyped-def]
    changed = 0
    finish = np.empty(len(member))
    for i in range(len(member)):
        a = member[i]
        old, new = s.activity[a, RATE], rates[i]
        if old == new or abs(new - old) <= SAME * old:
            continue
        if old > 0.0 and now > s.activity[a, SINCE]:
            s.activity[a, LEFT] = max(s.activity[a, LEFT] - old * (now - s.activity[a, SINCE]), 0.0)
        s.activity[a, SINCE] = now
        s.activity[a, RATE] = new
        if new == 0.0:
            finish[changed] = np.inf
        elif new == np.inf:
            finish[changed] = now
        else:
            finish[changed] = now + s.activity[a, LEFT] / new
        member[changed] = a
        changed += 1
    if 4 * changed > s.number[HEAPED]:
        for i in range(changed):
            s.activity[member[i], FINISH] = finish[i]
        for place in range((s.number[HEAPED] >> 1) - 1, -1, -1):
            _sink(s, place)
    else:
        # One after the other: moving one entry puts the heap in order only if all others are in order.
        for i in range(changed):
            s.activity[member[i], FINISH] = finish[i]
            _rise(s, s.state[member[i], PLACE])
            _sink(s, s.state[member[i], PLACE])


@loop
def _fill(s, member, pools, rates):  # type: ignore[no-untyped-def]
    # The part to solve is copied to a small, dense layout: member i uses the pools user_pool[first[i]:first[i + 1]], pool q is used by the
    # members pool_user[start[q]:start[q + 1]]. SLOT of a pool is its number in this layout, or -1 if it cannot bind or lies outside the
    # part.
    n, p = len(member), len(pools)
    capacity, free = np.empty(p), np.empty(p)
    for q in range(p):
        r = pools[q]
        binds = s.chain[r, KIND] == SHARED and s.capacity[r] < np.inf
        s.chain[r, SLOT] = q if binds else -1
        capacity[q] = free[q] = s.capacity[r]
    first, start = np.empty(n + 1, np.int64), np.zeros(p + 2, np.int64)
    total = 0
    for i in range(n):
        total += s.state[member[i], COUNT]
    user_pool, use = np.empty(total, np.int32), np.empty(total)
    weight, cap, rank_of = np.empty(n), np.empty(n), np.empty(n, np.int64)
    at = 0
    for i in range(n):
        a = member[i]
        first[i] = at
        weight[i], cap[i], rank_of[i] = s.activity[a, WEIGHT], s.activity[a, CAP], s.state[a, CLASS]
        for k in range(s.state[a, COUNT]):
            r = s.pool[a, k]
            q = s.chain[r, SLOT]
            if q >= 0:
                user_pool[at], use[at] = q, s.use[a, k]
                start[q + 2] += 1
                at += 1
            elif s.chain[r, KIND] == FATPIPE:
                cap[i] = min(cap[i], s.capacity[r] / s.use[a, k])
    first[n] = at
    for q in range(p):
        s.chain[pools[q], SLOT] = -1
        start[q + 2] += start[q + 1]
    pool_user, pool_use = np.empty(at, np.int32), np.empty(at)
    for i in range(n):
        for e in range(first[i], first[i + 1]):
            q = user_pool[e]
            pool_user[start[q + 1]], pool_use[start[q + 1]] = i, use[e]
            start[q + 1] += 1
    left, noise = n, NOISE
    while left > 0:
        rank = np.int64(1) << 62
        for i in range(n):
            if rates[i] < 0.0:
                rank = min(rank, rank_of[i])
        left -= _fill_class(first, user_pool, use, start, pool_user, pool_use, capacity, free, weight, cap, rank_of, rank, rates, noise)
        noise = SAME


@loop
def _fill_class(  # type: ignore[no-untyped-def]
    first, user_pool, use, start, pool_user, pool_use, capacity, free, weight, cap, rank_of, rank, rates, noise
):
    n, p = len(weight), len(capacity)
    load, open_users = np.zeros(p), np.zeros(p, np.int32)
    left = 0
    for q in range(p):
        if free[q] < noise * capacity[q]:
            free[q] = 0.0
    for i in range(n):
        if rates[i] < 0.0 and rank_of[i] == rank:
            left += 1
            for e in range(first[i], first[i + 1]):
                open_users[user_pool[e]] += 1
                load[user_pool[e]] += use[e] * weight[i]
    count, caps = left, 0
    capped, cap_level = np.empty(n, np.int64), np.empty(n)
    for i in range(n):
        if rates[i] >= 0.0 or rank_of[i] != rank:
            continue
        most, bound = cap[i], False
        for e in range(first[i], first[i + 1]):
            q = user_pool[e]
            if open_users[q] == 1:
                # A pool with a single activity only caps it.
                most = min(most, free[q] / use[e])
            else:
                bound = True
        if most < np.inf or not bound:
            capped[caps] = i
            cap_level[i] = most / weight[i]
            caps += 1
    for place in range((caps >> 1) - 1, -1, -1):
        _sink_level(capped, caps, cap_level, place)
    heap, level_of = np.empty(p, np.int64), np.empty(p)
    size = 0
    for q in range(p):
        if open_users[q] > 1:
            heap[size] = q
            level_of[q] = free[q] / load[q]
            size += 1
    for place in range((size >> 1) - 1, -1, -1):
        _sink_level(heap, size, level_of, place)
    while left > 0:
        if caps > 0 and (size == 0 or cap_level[capped[0]] <= level_of[heap[0]]):
            # Levels in the heap are never too high, so no pool can bind below this cap.
            i = capped[0]
            caps -= 1
            capped[0] = capped[caps]
            if caps > 0:
                _sink_level(capped, caps, cap_level, 0)
            if rates[i] < 0.0:
                _fix(i, cap_level[i], first, user_pool, use, free, load, open_users, weight, rates)
                left -= 1
            continue
        q = heap[0]
        if open_users[q] == 0:
            size -= 1
            heap[0] = heap[size]
            if size > 0:
                _sink_level(heap, size, level_of, 0)
            continue
        level = max(free[q], 0.0) / load[q]
        if level <= level_of[q] * (1.0 + 1e-9):
            # Differences of many terms drift, so the sums of a pool are computed again before it binds.
            used, total = 0.0, 0.0
            for e in range(start[q], start[q + 1]):
                i = pool_user[e]
                if rates[i] >= 0.0:
                    used += pool_use[e] * rates[i]
                elif rank_of[i] == rank:
                    total += pool_use[e] * weight[i]
            free[q] = capacity[q] - used if capacity[q] - used > noise * capacity[q] else 0.0
            load[q] = total
            level = free[q] / total
        if level > level_of[q]:
            level_of[q] = level
            _sink_level(heap, size, level_of, 0)
            if heap[0] != q or (caps > 0 and cap_level[capped[0]] <= level):
                continue
        for e in range(start[q], start[q + 1]):
            i = pool_user[e]
            if rates[i] < 0.0 and rank_of[i] == rank:
                _fix(i, level, first, user_pool, use, free, load, open_users, weight, rates)
                left -= 1
    return count


@loop
def _fix(i, level, first, user_pool, use, free, load, open_users, weight, rates):  # type: ignore[no-untyped-def]
    rates[i] = level * weight[i]
    for e in range(first[i], first[i + 1]):
        q = user_pool[e]
        free[q] -= use[e] * rates[i]
        load[q] -= use[e] * weight[i]
        open_users[q] -= 1


@loop
def _sink_level(heap, size, level_of, place):  # type: ignore[no-untyped-def]
    i = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _lower(level_of, heap[child + 1], heap[child]):
            child += 1
        if not _lower(level_of, heap[child], i):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = i


@loop
def _lower(level_of, i, j):  # type: ignore[no-untyped-def]
    return level_of[i] < level_of[j] or (level_of[i] == level_of[j] and i < j)


@loop
def users(s, r, out):  # type: ignore[no-untyped-def]
    """Writes the rows of the activities in pool r, newest first; returns their number and the capacity that they use now."""
    shift = s.number[SHIFT]
    low = (1 << shift) - 1
    count, used = 0, 0.0
    place = s.chain[r, FIRST]
    while place >= 0:
        a, k = place >> shift, place & low
        out[count] = a
        count += 1
        used += s.use[a, k] * s.activity[a, RATE]
        place = s.after[a, k]
    return count, used
