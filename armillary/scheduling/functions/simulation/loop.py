"""Calls played out event by event, on nodes whose cores are reserved and whose memory-bound calls slow each other down.

A call waits until a node has its vCPUs and its memory, takes a warm pod there or starts one cold, runs, and leaves the pod idle. Any call
whose size fits may start while a larger one of another function waits. A run that exceeds its memory is killed at half its work and tried
again with twice the memory. Sizes may be raised while a call x.runs.

Between two events nothing changes, so each node only keeps the time of its next one: an end, a kill, or a look at a running call. Every
array is written here, and all techniques go through the same lines; what they decide is in their `Policy`.
"""

from __future__ import annotations

import math
from typing import Any

from armillary.kernels import loop
from armillary.scheduling.functions.knowledge.store import killed, memory_mb, observe_memory, observe_time
from armillary.scheduling.functions.planning.choice import HOPELESS, WAIT, believed, cheapest_s, choose, explored, raised_size
from armillary.scheduling.functions.planning.policy import (
    CHOSEN,
    EARLIEST_DEADLINE,
    FIRST_FIT,
    LARGEST,
    LATEST_START,
    LEARNED,
    RANDOM,
    ROUND_ROBIN,
    TRUTH,
)  # fmt: skip

from .pods import end_pod, expire, idle_pod, take_pod, warm_pod
from .state import CHECKS, DECISIONS, KILLED, LEAST_MB, PEAK_AT, TURN, WAITING
from .waiting import pop, push

#: Looks at nodes and queues after which a play is given up as one that takes too long.
MOST_STEPS = 30_000_000_000
#: Cores below which a difference is one of rounding.
FITS = 1e-9
#: Why a play could not go on.
STUCK, NO_POD, TOO_LONG = 1, 2, 3


@loop
def _advance(g: Any, x: Any, node: int, now: float) -> None:
    """Brings the progress of all calls of a node up to now, after which the composition of the node may change."""
    for i in range(x.nodes.running[node]):
        c = x.slot[node, i]
        if now > x.runs.at[c]:
            x.runs.progress[c] += (now - x.runs.at[c]) / x.runs.time[c]
            x.runs.at[c] = now


@loop
def _retime(g: Any, x: Any, node: int) -> None:
    """New times of all calls of a node after a change there, and of its next event."""
    t = g.kind[node]
    busy = g.cores[t] - x.nodes.free[node]
    share = x.nodes.bound[node] / busy if busy > FITS else 0.0
    soon = math.inf
    for i in range(x.nodes.running[node]):
        c = x.slot[node, i]
        f = g.calls.function[c]
        time = g.seconds[f, t, x.runs.step[c]] * g.calls.input[c] * g.calls.noise[c] * g.calls.stolen[c]
        if g.functions.bound[f]:
            time *= 1.0 + g.contention * share
        x.runs.time[c] = time
        goal = 1.0 if x.pods.memory[x.runs.pod[c]] >= g.calls.peak[c] else PEAK_AT
        soon = min(soon, x.runs.at[c] + max(goal - x.runs.progress[c], 0.0) * time)
        if x.runs.look[c] < len(CHECKS):
            soon = min(soon, max(x.runs.begin[c] + CHECKS[x.runs.look[c]] * x.runs.expected[c], x.runs.at[c]))
    x.nodes.next[node] = soon


@loop
def _pay(g: Any, x: Any, c: int, now: float) -> None:
    """Counts the core-seconds since the last change of size."""
    spent = g.sizes[x.runs.step[c]] * (now - x.runs.since[c])
    x.runs.core_s[c] += spent
    x.runs.money[c] += spent * g.price[g.kind[x.runs.node[c]]] / 3600
    x.runs.since[c] = now


@loop
def _start(g: Any, policy: Any, x: Any, c: int, node: int, k: int, want: float, expected: float, now: float) -> bool:
    """Starts a call on a node. False if no pod is left, which is an error."""
    f, t = g.calls.function[c], g.kind[node]
    pod, cold = take_pod(x, node, f, want, g.memory[t], now)
    if pod < 0:
        return False
    _advance(g, x, node, now)
    wait = g.functions.cold[f] if cold else 0.0
    x.runs.node[c], x.runs.step[c], x.runs.pod[c] = node, k, pod
    x.runs.start[c], x.runs.begin[c], x.runs.at[c], x.runs.since[c] = now, now + wait, now + wait, now
    x.runs.progress[c], x.runs.expected[c], x.runs.raised[c] = 0.0, expected, 0
    x.runs.cold[c] += 1 if cold else 0
    # Looks that will find a call on time change nothing, so they are not played.
    slower = 1.0 if policy.knowledge == TRUTH else g.calls.stolen[c]
    late = policy.raise_quota and expected > 0 and now + wait + expected * slower > g.calls.deadline[c] - 1e-6
    x.runs.look[c] = 0 if late and not x.runs.late[c] else len(CHECKS)
    usual = expected
    if usual < 0:  # the plainest guess: the mean of its runs so far
        usual = x.totals.spent[f] / x.totals.many[f] if x.totals.many[f] else g.seconds[f, t, k]
    x.runs.promise[c] = now - g.calls.arrival[c] + wait + usual
    x.nodes.free[node] -= g.sizes[k]
    if g.functions.bound[f]:
        x.nodes.bound[node] += g.sizes[k]
    x.slot[node, x.nodes.running[node]] = c
    x.nodes.running[node] += 1
    _retime(g, x, node)
    return True


@loop
def _leave(g: Any, x: Any, c: int, now: float) -> None:
    """A call gives its cores back."""
    node = x.runs.node[c]
    _pay(g, x, c, now)
    x.nodes.free[node] += g.sizes[x.runs.step[c]]
    if g.functions.bound[g.calls.function[c]]:
        x.nodes.bound[node] -= g.sizes[x.runs.step[c]]
    if x.nodes.running[node] == 1:
        x.nodes.free[node], x.nodes.bound[node] = g.cores[g.kind[node]], 0.0
    n = x.nodes.running[node] - 1
    for i in range(n + 1):
        if x.slot[node, i] == c:
            x.slot[node, i] = x.slot[node, n]
            break
    x.nodes.running[node] = n


@loop
def _fits(g: Any, x: Any, node: int, v: float, want: float) -> bool:
    """Whether a node has the cores and the memory; idle pods may leave for it."""
    return x.nodes.free[node] + FITS >= v and x.nodes.busy_mb[node] + want <= g.memory[g.kind[node]]


@loop
def _place(g: Any, policy: Any, x: Any, f: int, k: int, want: float, draw: float, now: float) -> int:
    """The node of a call whose size is given, or −1: nodes with a warm pod first, then by the policy's rule."""
    n = len(g.kind)
    for warm in (True, False):
        many, best, high = 0, -1, -1.0
        for i in range(n):
            node = (x.counts[TURN] + i) % n if policy.place == ROUND_ROBIN else i
            if not _fits(g, x, node, g.sizes[k], want):
                continue
            expire(x, node, now)
            if warm and warm_pod(x, node, f, want) < 0:
                continue
            many += 1
            if policy.place == FIRST_FIT or policy.place == ROUND_ROBIN:
                best = node
                break
            if policy.place != RANDOM and x.nodes.free[node] / g.cores[g.kind[node]] > high + FITS:
                best, high = node, x.nodes.free[node] / g.cores[g.kind[node]]
        if policy.place == RANDOM and many:
            take = min(int(draw * many), many - 1)
            for node in range(n):
                if _fits(g, x, node, g.sizes[k], want) and not (warm and warm_pod(x, node, f, want) < 0):
                    if take == 0:
                        best = node
                        break
                    take -= 1
        if best >= 0:
            if policy.place == ROUND_ROBIN:
                x.counts[TURN] = (best + 1) % n
            return int(best)
    return -1


@loop
def _wanted(g: Any, policy: Any, store: Any, x: Any, c: int) -> float:
    """The memory of a call's next run in MB; no more than the largest node has."""
    f = g.calls.function[c]
    want = g.functions.user_mb[f]
    if policy.learn_memory:
        want = memory_mb(store, f, want) if policy.knowledge == LEARNED else g.functions.least_mb[f]
    return min(max(want, x.runs.least_mb[c], LEAST_MB), g.memory.max())


@loop
def _seek(
    g: Any, policy: Any, store: Any, profile: Any, deviation: Any, x: Any, c: int,
    now: float,
) -> int:  # fmt: skip
    """Starts a call if it can: 1 started, 0 must wait, −1 cannot be in time, −9 an error."""
    f = g.calls.function[c]
    want = _wanted(g, policy, store, x, c)
    x.counts[DECISIONS] += 1
    if policy.size != CHOSEN or (policy.knowledge == LEARNED and store.own.runs[f] == 0):
        k = len(g.sizes) - 1 if policy.size == LARGEST else g.functions.user[f]
        if policy.give_up >= 0 and not x.runs.late[c] and now + policy.give_up * g.seconds[f, g.standard, k] > g.calls.deadline[c]:
            return -1
        node = _place(g, policy, x, f, k, want, g.calls.place[c], now)
        if node < 0:
            return 0
        return 1 if _start(g, policy, x, c, node, k, want, -1.0, now) else -9
    types = len(g.cores)
    # room: per type, free cores of the best node with a warm pod and of the best node, and which these are.
    for t in range(types):
        x.room[0, t], x.room[1, t], x.room[2, t], x.room[3, t] = -1.0, -1.0, -1.0, -1.0
    for node in range(len(g.kind)):
        t = g.kind[node]
        if not _fits(g, x, node, 0.0, want):
            continue
        expire(x, node, now)
        free = x.nodes.free[node] + FITS
        if free > x.room[1, t]:
            x.room[1, t], x.room[3, t] = free, node
        if free > x.room[0, t] and warm_pod(x, node, f, want) >= 0:
            x.room[0, t], x.room[2, t] = free, node
    hidden = g.calls.input[c] * g.calls.noise[c] * g.calls.stolen[c]
    slack = g.calls.deadline[c] - now
    # A call that runs last has nothing to lose: it takes the cheapest.
    within = math.inf if x.runs.late[c] else slack
    t, k, warm = choose(
        policy, store, profile, deviation, g.price, g.cores, g.sizes, f, g.calls.told[c], hidden, within, g.functions.cold[f],
        x.room[0], x.room[1], x.costs,
    )  # fmt: skip
    if t == HOPELESS:
        return -1
    if t == WAIT:
        return 0
    node = int(x.room[2, t] if warm else x.room[3, t])
    if policy.explore > 0 and policy.knowledge == LEARNED and not x.runs.late[c]:
        k = explored(policy, store, g.cores, g.sizes, f, t, k, g.calls.told[c], slack, x.nodes.free[node] + FITS, g.calls.try_[c])
    time, _ = believed(policy, store, profile, deviation, f, t, k, g.calls.told[c], hidden)
    return 1 if _start(g, policy, x, c, node, k, want, time, now) else -9


@loop
def _order(g: Any, policy: Any, store: Any, profile: Any, deviation: Any, x: Any, f: int, now: float) -> None:
    """When the head of a function's queue should come."""
    c = x.heap.call[g.first[f]]
    x.queues.order[f] = x.heap.key[g.first[f]]
    if policy.order == LATEST_START and not (policy.knowledge == LEARNED and store.own.runs[f] == 0):
        hidden = g.calls.input[c] * g.calls.noise[c] * g.calls.stolen[c]
        time = cheapest_s(
            policy, store, profile, deviation, g.price, g.cores, g.sizes, f, g.calls.told[c], hidden, g.calls.deadline[c] - now
        )  # fmt: skip
        x.queues.order[f] = g.calls.deadline[c] - time


@loop
def _dispatch(g: Any, policy: Any, store: Any, profile: Any, deviation: Any, x: Any, only: int, now: float) -> bool:
    """Starts whoever can start, in the policy's order; of each function, until its head must wait. False for an error.

    only: the function whose head alone can have become able to start, or −1.
    """
    functions, last = len(g.functions), len(g.calls)
    if only < 0 and x.counts[WAITING] > 0:
        for f in range(functions):
            x.queues.blocked[f] = 0 if x.queues.count[f] > 0 else 1
            if x.queues.count[f] > 0:
                _order(g, policy, store, profile, deviation, x, f, now)
    while True:
        best = only
        if only < 0 and x.counts[WAITING] > 0:
            for f in range(functions):
                if not x.queues.blocked[f] and (best < 0 or x.queues.order[f] < x.queues.order[best]):
                    best = f
        if best < 0 and (x.counts[WAITING] > 0 or x.queues.count[functions] == 0):
            return True
        c = x.heap.call[g.first[best]] if best >= 0 else x.heap.call[last]
        outcome = _seek(g, policy, store, profile, deviation, x, c, now)
        if outcome == -9:
            return False
        if best < 0:
            if outcome != 1:
                return True
            pop(x, last, functions)
            continue
        if outcome != 0:
            pop(x, g.first[best], best)
            x.counts[WAITING] -= 1
            if outcome == -1:
                x.runs.late[c] = 1
                push(x, last, functions, g.calls.arrival[c], c)
        if only >= 0:
            if outcome != -1 or x.counts[WAITING] > 0:
                return True
            only = -1  # it runs last, and nobody is before it
            continue
        if outcome == 0 or x.queues.count[best] == 0:
            x.queues.blocked[best] = 1
        else:
            _order(g, policy, store, profile, deviation, x, best, now)


@loop
def _queue(g: Any, policy: Any, x: Any, c: int) -> None:
    f = g.calls.function[c]
    push(
        x,
        g.first[f],
        f,
        g.calls.arrival[c] if policy.order != LATEST_START and policy.order != EARLIEST_DEADLINE else g.calls.deadline[c],
        c,
    )
    x.counts[WAITING] += 1


@loop
def _look(g: Any, policy: Any, store: Any, profile: Any, deviation: Any, x: Any, c: int, now: float) -> None:
    """Compares the CPU time that a running call has used with what was expected, and raises its quota if it would be late.

    Stolen cycles are seen by the counters; noise and contention for memory are not.
    """
    x.runs.look[c] += 1
    node, f = x.runs.node[c], g.calls.function[c]
    elapsed = now - x.runs.begin[c]
    knows = policy.knowledge == TRUTH
    done = elapsed / x.runs.expected[c] / (1.0 if knows else g.calls.stolen[c])
    hidden = g.calls.input[c] * g.calls.noise[c] * g.calls.stolen[c]
    k, _ = raised_size(
        policy, store, profile, deviation, g.sizes, f, g.kind[node], x.runs.step[c], g.calls.told[c], hidden, elapsed, done,
        g.calls.deadline[c] - now, x.nodes.free[node] + FITS,
    )  # fmt: skip
    if k == x.runs.step[c]:
        return
    _pay(g, x, c, now)
    more = g.sizes[k] - g.sizes[x.runs.step[c]]
    x.nodes.free[node] -= more
    if g.functions.bound[f]:
        x.nodes.bound[node] += more
    x.runs.step[c], x.runs.raised[c], x.runs.look[c] = k, 1, len(CHECKS)


@loop
def _judge(g: Any, policy: Any, store: Any, x: Any, f: int) -> None:
    """Whether the estimates are right: the size for the median deadline on a standard node, and the memory, within 15 %."""
    x.totals.runs[f] += 1
    if policy.size != CHOSEN or policy.knowledge != LEARNED or g.functions.least[f] < 0 or store.own.runs[f] == 0:
        return
    found = -1
    for k in range(len(g.sizes)):
        if g.sizes[k] > g.cores[g.standard]:
            break
        time, sd = believed(policy, store, g.seconds, g.seconds, f, g.standard, k, 1.0, 1.0)
        if time + policy.z * sd <= g.functions.median[f]:
            found = k
            break
    memory = memory_mb(store, f, g.functions.user_mb[f]) if policy.learn_memory else g.functions.user_mb[f]
    right = found == g.functions.least[f] and abs(memory / g.functions.least_mb[f] - 1) <= 0.15
    x.totals.streak[f] = x.totals.streak[f] + 1 if right else 0
    if x.totals.streak[f] == 21 and x.totals.converged[f] < 0:
        x.totals.converged[f] = x.totals.runs[f] - 20


@loop
def _observe(g: Any, policy: Any, store: Any, x: Any, c: int, now: float) -> None:
    """What a finished run says: its time, CPU seconds, throttled seconds and peak."""
    f, node = g.calls.function[c], x.runs.node[c]
    t = g.kind[node]
    observe_memory(store, f, g.calls.peak[c])
    if x.runs.raised[c]:
        return  # its time is of two sizes
    v = g.sizes[x.runs.step[c]]
    wall = now - x.runs.begin[c]
    plain = g.seconds[f, t, x.runs.step[c]] * g.calls.input[c] * g.calls.noise[c]
    factor = wall / plain / g.calls.stolen[c]  # of contention, whose stalls count as CPU time
    computing = g.serial[f, t] * g.calls.input[c] * g.calls.noise[c] * factor
    thin = min(v, 1.0)
    parallel = (
        g.functions.parallel[f] * g.serial[f, t] / max(v, 1.0) / (plain / (g.calls.input[c] * g.calls.noise[c]) * thin)
    )  # share of the time
    throttled = wall * (parallel + (1 - parallel) * (1 - thin)) if v < g.sizes[-1] else -1.0
    observe_time(store, f, t, x.runs.step[c], wall, computing, throttled, g.calls.told[c], policy.counters, policy.node_factors)


@loop
def run(g: Any, policy: Any, store: Any, profile: Any, deviation: Any, x: Any) -> int:
    """Plays all calls; 0, or why it could not."""
    calls, done, i = len(g.calls), 0, 0
    look = math.inf
    steps = 0
    while done < calls:
        steps += len(g.kind) + len(g.functions)
        if steps + x.counts[DECISIONS] * len(g.kind) > MOST_STEPS:
            return TOO_LONG
        arrival = g.calls.arrival[i] if i < calls else math.inf
        node, soon = 0, math.inf
        for n in range(len(x.nodes)):
            if x.nodes.next[n] < soon:
                node, soon = n, x.nodes.next[n]
        now = min(arrival, soon, look)
        if now == math.inf:
            return STUCK
        scan = -2  # nobody can start
        if arrival <= soon and arrival <= look:
            _queue(g, policy, x, i)
            f = g.calls.function[i]
            # Nothing was freed, so only this call can start, if it is the first of its function.
            if x.heap.call[g.first[f]] == i:
                scan = f
            i += 1
        elif soon <= look:
            changed = False
            close = 1e-9 + 1e-14 * now
            _advance(g, x, node, now)
            s = 0
            while s < x.nodes.running[node]:
                c = x.slot[node, s]
                goal = 1.0 if x.pods.memory[x.runs.pod[c]] >= g.calls.peak[c] else PEAK_AT
                if x.runs.at[c] <= now and (goal - x.runs.progress[c]) * x.runs.time[c] <= close:
                    changed = True
                    f = g.calls.function[c]
                    _leave(g, x, c, now)
                    if goal == 1.0:
                        x.runs.end[c] = now
                        done += 1
                        idle_pod(x, node, x.runs.pod[c], now)
                        x.totals.spent[f] += now - x.runs.begin[c]
                        x.totals.many[f] += 1
                        if policy.size == CHOSEN and policy.knowledge == LEARNED:
                            _observe(g, policy, store, x, c, now)
                        _judge(g, policy, store, x, f)
                    else:
                        limit = x.pods.memory[x.runs.pod[c]]
                        x.nodes.busy_mb[node] -= limit
                        end_pod(x, x.runs.pod[c], now)
                        x.counts[KILLED] += 1
                        x.runs.attempts[c] += 1
                        x.runs.least_mb[c] = 2 * limit
                        if policy.learn_memory:
                            killed(store, f, limit)
                        if x.runs.late[c]:
                            push(x, calls, len(g.functions), g.calls.arrival[c], c)
                        else:
                            _queue(g, policy, x, c)
                    continue
                if x.runs.look[c] < len(CHECKS) and now >= x.runs.begin[c] + CHECKS[x.runs.look[c]] * x.runs.expected[c] - close:
                    _look(g, policy, store, profile, deviation, x, c, now)
                s += 1
            _retime(g, x, node)
            if changed:
                scan = -1
        else:
            scan = -1
            look = math.inf
        late = x.queues.count[len(g.functions)]
        if scan != -2 and not _dispatch(g, policy, store, profile, deviation, x, scan, now):
            return NO_POD
        # Looks go on while somebody waits; calls that run last wait for events, after one look.
        if policy.look_s > 0 and look == math.inf and (x.counts[WAITING] > 0 or x.queues.count[len(g.functions)] > late):
            look = now + policy.look_s
    for node in range(len(g.kind)):
        expire(x, node, math.inf)
    return 0
