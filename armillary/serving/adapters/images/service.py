"""Runs image workers in simulated time: tasks arrive, a policy decides, and loads and steps take their seconds."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .policy import BASE, HOST, SSD, ImagePolicy, Load, Task, Worker
from .workload import LOAD_S, ImageTrace

if TYPE_CHECKING:
    from collections.abc import Iterator

TICK_S = 5.0
#: The time of a load from the host and from SSD as a share of one from the remote store (our figures).
SHARE = {HOST: 0.1, SSD: 0.35}
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Served:
    """The outcome of a trace: seconds per request, and counts."""

    start_s: npt.NDArray[np.float64]
    finish_s: npt.NDArray[np.float64]
    worker: npt.NDArray[np.int64]
    load_s: npt.NDArray[np.float64]
    latency_s: npt.NDArray[np.float64]
    hits: int
    lookups: int
    loads: int
    end_s: float
    busy_s: float

    @property
    def hit_ratio(self) -> float:
        """The share of base models and LoRAs that were on the device when their request started."""
        return self.hits / self.lookups if self.lookups else 1.0

    @property
    def updates_per_h(self) -> float:
        """The base models and LoRAs loaded per hour."""
        return self.loads * 3600.0 / self.end_s if self.end_s else 0.0


def load_seconds(load: Load, task: int, trace: ImageTrace) -> float:
    """Returns the seconds of loads, equal for all policies: the trace's own times, else lognormal with GenTD26's median and p99."""
    x = (task * _GOLDEN + load.number * 0xBF58476D1CE4E5B9 + load.what * 0x94D049BB133111EB) & ((1 << 64) - 1)
    x ^= x >> 31
    x = (x * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
    u = ((x >> 11) + 0.5) / (1 << 53)
    kept = trace.base_load_s if load.what == BASE else trace.lora_load_s
    if len(kept):
        seconds = float(kept[min(len(kept) - 1, int(u * len(kept)))])
    else:
        median, p99 = LOAD_S["base" if load.what == BASE else "lora"]
        seconds = median * math.exp(_normal(u) * math.log(p99 / median) / 2.3263)
    return seconds * SHARE.get(load.level, 1.0)


def _normal(u: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(u)


def tasks(trace: ImageTrace) -> Iterator[Task]:
    """Yields the requests of a trace, one by one."""
    for i in range(len(trace)):
        yield Task(
            i,
            float(trace.arrival_s[i]),
            int(trace.base[i]),
            trace.loras_of(i),
            int(trace.steps[i]),
            int(trace.images[i]),
            int(trace.kind[i]),
        )


def serve(trace: ImageTrace, policy: ImagePolicy, workers: Sequence[Worker]) -> Served:
    """Runs a trace to its end."""
    n = len(trace)
    start, finish, which, loading = np.full(n, np.nan), np.full(n, np.nan), np.full(n, -1), np.zeros(n)
    policy.start(workers)
    idle = dict.fromkeys(range(len(workers)))
    running: list[tuple[float, int, Task, float]] = []
    hits = lookups = loads = 0
    busy = now = 0.0
    tick = TICK_S
    coming = tasks(trace)
    head = next(coming, None)
    waiting = 0
    while head is not None or running or waiting:
        t = min(head.arrival_s if head else math.inf, running[0][0] if running else math.inf)
        if waiting and idle:
            t = min(t, tick)
        if t == math.inf:
            raise RuntimeError(f"{waiting} tasks wait and no worker takes them")
        while tick <= t:
            policy.tick(tick)
            tick += TICK_S
        now = t
        while running and running[0][0] <= now:
            _, w, task, seconds = heapq.heappop(running)
            finish[task.number] = now
            policy.done(w, task, now, seconds)
            idle[w] = None
        while head is not None and head.arrival_s <= now:
            policy.submit(head, now)
            waiting += 1
            head = next(coming, None)
        if not waiting:
            continue
        # A worker that left a task to another one is asked again after that one has taken something.
        asked = list(idle)
        while asked and waiting:
            w = asked.pop(0)
            decision = policy.next(w, now)
            if decision is None:
                continue
            asked = [x for x in idle if x != w]
            task = decision.task
            del idle[w]
            waiting -= 1
            spent = sum(load_seconds(load, task.number, trace) for load in decision.loads)
            seconds = workers[w].service_s(task)
            lookups += 1 + len(task.loras)
            hits += 1 + len(task.loras) - len(decision.loads)
            loads += len(decision.loads)
            start[task.number], which[task.number], loading[task.number] = now, w, spent
            busy += spent + seconds
            heapq.heappush(running, (now + spent + seconds, w, task, seconds))
    return Served(start, finish, which, loading, finish - trace.arrival_s, hits, lookups, loads, now, busy)
