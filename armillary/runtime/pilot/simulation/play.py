"""The course of a pilot: tasks are bound to nodes when there is room, pass the stations, run, and give their nodes back.

A station serves in the order in which tasks come, so the time at which a task leaves it follows from the time at which the one before it
did: the only events are ends, arrivals and instances that come up. Nodes are taken by first fit. Tasks that need the same wait in one
line, and younger lines may pass an older one whose first task has no room (backfill); the oldest such task reserves the nodes that lack
least for it, and nobody else is placed on these, so it cannot starve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.engine.compiled import heap, pop, push
from armillary.errors import InputError
from armillary.kernels import loop

from ..workload import BARRIER, EXECUTABLE, FUNCTION, Work
from .nodes import OPEN, RESERVED, find, find_several, nearest, nodes_of, take, turn
from .plan import Plan, bounds

END, ARRIVAL, UP = 0, 1, 2
#: Different needs of tasks: the scheduler looks at one line of waiting tasks for each.
MOST_SHAPES = 4096


@dataclass(frozen=True)
class Played:
    """When every task of a work became ready, was placed, started and ended (seconds), and on which nodes."""

    work: Work
    ready: np.ndarray
    placed: np.ndarray
    started: np.ndarray
    ended: np.ndarray
    #: `nodes[place[i] : place[i] + width[i]]` are the nodes of task i.
    nodes: np.ndarray
    place: np.ndarray
    bootstrap: float

    @property
    def real(self) -> np.ndarray:
        """Which of the tasks are no barriers."""
        return self.work.kind != BARRIER

    @property
    def makespan(self) -> float:
        """Seconds from the begin of the allocation to the last end."""
        return float(self.ended.max(initial=0.0))

    @property
    def utilization(self) -> float:
        """Busy core-seconds over all core-seconds from the first start to the last end."""
        real = self.real
        span = float(self.ended[real].max() - self.started[real].min())
        return self.work.core_seconds / (self.work.nodes * self.work.node_cores * span) if span > 0 else 0.0

    @property
    def rate_peak(self) -> float:
        """Starts in the busiest second."""
        return busiest(self.started[self.real])

    @property
    def rate_mean(self) -> float:
        """Starts per second between the first and the last; a span below a millisecond counts as one."""
        started = self.started[self.real]
        return len(started) / max(1e-3, float(started.max() - started.min()))

    def stages(self) -> list[dict[str, object]]:
        """One row per stage: tasks, when the first began and the last ended, and the median wait from ready to started."""
        rows: list[dict[str, object]] = []
        for number, name in enumerate(self.work.stages):
            mine = (self.work.stage == number) & self.real
            if mine.any():
                wait = float(np.median((self.started - self.ready)[mine]))
                rows.append({"stage": name, "tasks": int(mine.sum()), "first_start_s": float(self.started[mine].min()),
                             "last_end_s": float(self.ended[mine].max()), "median_wait_s": wait})  # fmt: skip
        return rows

    @property
    def latency(self) -> np.ndarray:
        """Seconds from ready to started of each task."""
        return (self.started - self.ready)[self.real]


def busiest(started: np.ndarray) -> float:
    """The most starts within any second."""
    times = np.sort(started)
    # Sums of service times lie a few bits beside whole seconds.
    return float((np.searchsorted(times, times + (1 - 1e-9), side="left") - np.arange(len(times))).max())


def simulate(work: Work, plan: Plan, rng: np.random.Generator | None = None) -> Played:
    """Plays `work` on a pilot. With a variation in the plan, `rng` draws one factor of the service time per task."""
    n = len(work.kind)
    if not n:
        raise InputError("found no tasks; expected at least one")
    names = [r.name for r in plan.runtimes]
    work.check_fits(work.nodes)
    for kind in (EXECUTABLE, FUNCTION):
        runtime = plan.runtimes[plan.route[kind]]
        mine = work.kind == kind
        if mine.any():
            if math.isinf(runtime.service_s(kind == FUNCTION)):
                raise InputError(f"{names[plan.route[kind]]} starts no {'functions' if kind else 'executables'}")
            largest = int(np.diff(bounds(work.nodes, runtime.parts(work.nodes))).max())
            if int(work.width[mine].max()) > largest and not runtime.per_node:
                work.check_fits(largest, f"every partition of {runtime.name}")
    noise = _noise(n, plan, rng)
    counts = [r.parts(work.nodes) for r in plan.runtimes]
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    edges = [bounds(work.nodes, count) for count in counts]
    low, high = np.concatenate([e[:-1] for e in edges]), np.concatenate([e[1:] for e in edges])
    up = np.concatenate([np.full(count, r.start_s) for count, r in zip(counts, plan.runtimes, strict=True)])
    service = np.array([[min(r.executable_s, 1e300), min(r.function_s, 1e300)] for r in plan.runtimes])
    feed = np.array([r.feed_s for r in plan.runtimes])
    ceiling = np.array([r.ceiling for r in plan.runtimes], np.int64)
    running = tuple(heap(max(1, r.ceiling) + 1) for r in plan.runtimes)
    shape, needs = shapes(work)
    place = np.concatenate(([0], np.cumsum(work.width))).astype(np.int64)
    out = (np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan))
    on = np.full(int(place[-1]), -1, np.int64)
    pool = nodes_of(work.nodes, work.node_cores, work.node_gpus)
    used = {plan.route[k] for k in (0, 1) if (work.kind == k).any()}
    left = _play(
        work.kind, work.width, work.cores, work.gpus, work.seconds, work.arrives, work.first, work.after, work.missing.copy(), shape, needs,
        pool, plan.agent_s, np.array(plan.route, np.int64), service, feed, ceiling, running, starts, low, high, up, noise,
        heap(2 * n + len(up) + 1), plan.backfill, np.array([r.per_node for r in plan.runtimes]), place, on, out,
    )  # fmt: skip
    if left:
        raise InputError(f"{left:,} tasks never ran; expected dependencies without a cycle, and partitions that can hold every task")
    bootstrap = max((plan.runtimes[r].start_s for r in used), default=0.0)
    return Played(work, *out, on, place, bootstrap)


def _noise(n: int, plan: Plan, rng: np.random.Generator | None) -> np.ndarray:
    """One factor of the launcher's service time per task."""
    if rng is None:
        return np.ones(n)
    if plan.measured:
        factors = np.array(plan.measured) / max(1e-12, float(np.mean(plan.measured)))
        return factors[rng.integers(0, len(factors), n)]
    if not plan.cv:
        return np.ones(n)
    from armillary.workloads import lognormal

    # Nine decimals, so that the last bits of an exponential decide nothing.
    return np.round(lognormal(rng, n, mean=1.0, cv=plan.cv), 9)


def shapes(work: Work) -> tuple[np.ndarray, np.ndarray]:
    """The number of each task's shape, and for each shape (kind, nodes, cores, GPUs)."""
    rows = np.stack([work.kind, work.width, work.cores, work.gpus], axis=1)
    needs, shape = np.unique(rows, axis=0, return_inverse=True)
    if len(needs) > MOST_SHAPES:
        raise InputError(f"found tasks of {len(needs):,} different shapes; expected at most {MOST_SHAPES:,}")
    return shape.reshape(-1).astype(np.int64), np.ascontiguousarray(needs)


@loop
def _place(pool: Any, need: np.ndarray, runtime: int, starts: np.ndarray, low: np.ndarray, high: np.ndarray, up: np.ndarray, now: float,
           free: np.ndarray, per_node: bool, of: np.ndarray, spot: np.ndarray) -> int:  # fmt: skip
    """Finds nodes for a task of this need and writes them into `spot`; returns the instance, or -1."""
    if per_node:
        # All instances come up together, and the node says which of them launches.
        found = up[starts[runtime]] <= now and find_several(pool, 0, len(pool.cores), need[1], need[2], need[3], spot)
        return of[runtime, spot[0]] if found else -1
    tried = np.zeros(starts[runtime + 1] - starts[runtime], np.bool_)
    for _ in range(len(tried)):
        best = -1
        for k in range(starts[runtime], starts[runtime + 1]):
            if not tried[k - starts[runtime]] and up[k] <= now and (best < 0 or free[k] > free[best]):
                best = k
        if best < 0:
            return -1
        tried[best - starts[runtime]] = True
        if high[best] - low[best] < need[1]:
            continue
        if need[1] == 1:
            node = find(pool, low[best], high[best], need[2], need[3])
            if node >= 0:
                spot[0] = node
                return best
        elif find_several(pool, low[best], high[best], need[1], need[2], need[3], spot):
            return best
    return -1


@loop
def _reserve(pool: Any, need: np.ndarray, runtime: int, starts: np.ndarray, low: np.ndarray, high: np.ndarray, up: np.ndarray, now: float,
             free: np.ndarray, per_node: bool, of: np.ndarray, spot: np.ndarray) -> int:  # fmt: skip
    """The instance in which nodes are to be reserved, with the nodes in `spot`, or -1."""
    if per_node:
        found = up[starts[runtime]] <= now and nearest(pool, 0, len(pool.cores), need[1], need[2], need[3], spot)
        return of[runtime, spot[0]] if found else -1
    best = -1
    for k in range(starts[runtime], starts[runtime + 1]):
        if up[k] <= now and high[k] - low[k] >= need[1] and (best < 0 or free[k] > free[best]):
            best = k
    if best >= 0 and not nearest(pool, low[best], high[best], need[1], need[2], need[3], spot):
        return -1
    return best


@loop
def _play(  # type: ignore[no-untyped-def]
          kind, width, cores, gpus, seconds, arrives, first, after, missing, shape, needs, pool, agent_s, route, service, feed, ceiling,
          running, starts, low, high, up, noise, events, backfill, per_node, place, on, out):  # fmt: skip
    # Invariant: a task holds its nodes from the moment it is placed to its end. Times at stations never decrease.
    ready, placed, started, ended = out
    n, lines = len(kind), len(needs)
    head, tail = np.full(lines, -1, np.int64), np.full(lines, -1, np.int64)
    behind, number = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    blocked = np.zeros(lines, np.bool_)
    free = np.zeros(len(low), np.int64)
    for k in range(len(low)):
        for node in range(low[k], high[k]):
            free[k] += pool.cores[node]
    of = np.full((len(feed), len(pool.cores)), -1, np.int64)
    for r in range(len(feed)):
        for k in range(starts[r], starts[r + 1]):
            of[r, low[k] : high[k]] = k
    agent, fed, launcher = 0.0, np.zeros(len(feed)), up.copy()
    stack = np.empty(n, np.int64)
    spot, kept = np.empty(len(pool.cores), np.int64), np.empty(len(pool.cores), np.int64)
    reserver, reserved, sequence, done = -1, 0, 0, 0
    for i in range(n):
        if missing[i] == 0:
            push(events, arrives[i], ARRIVAL, i)
    for k in range(len(up)):
        push(events, up[k], UP, k)
    while events.held[0] > 0:
        now, what, i = pop(events)
        while True:
            if what != UP:
                depth = 1
                stack[0] = i
                while depth > 0:
                    depth -= 1
                    t = stack[depth]
                    if what == ARRIVAL and t == i and kind[t] != BARRIER:
                        ready[t] = now
                        number[t] = sequence
                        sequence += 1
                        s = shape[t]
                        if head[s] < 0:
                            head[s] = t
                        else:
                            behind[tail[s]] = t
                        tail[s] = t
                        continue
                    if kind[t] == BARRIER:
                        ready[t] = placed[t] = started[t] = ended[t] = now
                    else:
                        for p in range(place[t], place[t + 1]):
                            node = on[p]
                            take(pool, node, -cores[t], -gpus[t])
                            for r in range(len(feed)):
                                free[of[r, node]] += cores[t]
                    done += 1
                    for p in range(first[t], first[t + 1]):
                        follower = after[p]
                        missing[follower] -= 1
                        if missing[follower] == 0:
                            if kind[follower] == BARRIER and arrives[follower] <= now:
                                stack[depth] = follower
                                depth += 1
                            else:
                                push(events, max(now, arrives[follower]), ARRIVAL, follower)
            if events.held[0] == 0 or events.time[0] > now:
                break
            now, what, i = pop(events)
        blocked[:] = False
        oldest = True
        while True:
            s = -1
            for line in range(lines):
                if head[line] >= 0 and not blocked[line] and (s < 0 or number[head[line]] < number[head[s]]):
                    s = line
            if s < 0:
                break
            t, need = head[s], needs[s]
            r = route[need[0]]
            if t == reserver:
                for p in range(reserved):
                    turn(pool, kept[p], OPEN)
            k = _place(pool, need, r, starts, low, high, up, now, free, per_node[r], of, spot)
            if k < 0:
                if t == reserver:
                    for p in range(reserved):
                        turn(pool, kept[p], RESERVED)
                elif (
                    oldest and reserver < 0 and backfill and (need[1] > 1 or need[2] > 1 or need[3] > 0)
                    and _reserve(pool, need, r, starts, low, high, up, now, free, per_node[r], of, kept) >= 0
                ):  # fmt: skip
                    reserver, reserved = t, need[1]
                    for p in range(reserved):
                        turn(pool, kept[p], RESERVED)
                oldest = False
                blocked[s] = True
                if not backfill:
                    break
                continue
            if t == reserver:
                reserver, reserved = -1, 0
            head[s] = behind[t]
            for p in range(need[1]):
                node = spot[p]
                on[place[t] + p] = node
                take(pool, node, cores[t], gpus[t])
                for other in range(len(feed)):
                    free[of[other, node]] -= cores[t]
            placed[t] = now
            agent = max(agent, now) + agent_s
            fed[r] = max(fed[r], agent) + feed[r]
            begin = max(launcher[k], fed[r])
            if ceiling[r] > 0:
                for other in range(len(running)):
                    if other == r and running[other].held[0] >= ceiling[r]:
                        begin = max(begin, pop(running[other])[0])
            launcher[k] = begin + service[r, need[0]] * noise[t]
            started[t] = launcher[k]
            ended[t] = started[t] + seconds[t]
            for other in range(len(running)):
                if other == r and ceiling[r] > 0:
                    push(running[other], ended[t], 0, t)
            push(events, ended[t], END, t)
    return n - done
