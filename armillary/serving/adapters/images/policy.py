"""Decides which worker takes an image request and what stays loaded: workers, their stores, and the plain policies.

A policy has no clock and starts no work. It is told about tasks and free workers and answers with decisions, so that a real dispatcher
can use it as the simulator does. A worker's device holds base models and LoRAs, its node's host memory and SSD hold LoRAs, and the
remote store holds everything.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

#: Device classes of `genai-64`: (name, workers, seconds per step for one image, base models, LoRAs held). Our figures, from the trace's
#: median of 15 s for 30 steps.
GENAI_64 = (("a10g", 32, 0.50, 1, 4), ("l40s", 24, 0.28, 2, 8), ("a100", 8, 0.20, 3, 16))
WORKERS_PER_NODE, HOST_LORAS, SSD_LORAS = 8, 64, 512
IMAGES_EXPONENT = 0.9
HOST, SSD, REMOTE = 0, 1, 2
BASE, LORA = 0, 1


@dataclass(frozen=True)
class Worker:
    """A GPU that makes images, with its class, node, seconds per step, and the number of base models and LoRAs that it holds."""

    number: int
    group: str
    node: int
    step_s: float
    bases: int
    loras: int

    def service_s(self, task: Task) -> float:
        """Returns the seconds to run a task once everything is loaded."""
        return float(task.steps * self.step_s * task.images**IMAGES_EXPONENT)


def genai_64(loras: int | None = None) -> tuple[Worker, ...]:
    """Returns the 64 workers of the image cases; `loras` replaces the number of LoRAs that each holds."""
    out: list[Worker] = []
    for name, count, step_s, bases, held in GENAI_64:
        for _ in range(count):
            number = len(out)
            out.append(Worker(number, name, number // WORKERS_PER_NODE, step_s, bases, held if loras is None else loras))
    return tuple(out)


@dataclass(frozen=True)
class Task:
    """One request for images."""

    number: int
    arrival_s: float
    base: int
    loras: tuple[int, ...] = ()
    steps: int = 30
    images: int = 1
    kind: int = 0


class Load(NamedTuple):
    """A load to a device: BASE or LORA, its number, and where it was found."""

    what: int
    number: int
    level: int


@dataclass(frozen=True)
class Decision:
    """The task that a worker runs next, what must be loaded for it, and what leaves the device for that."""

    task: Task
    loads: tuple[Load, ...]
    evictions: tuple[tuple[int, int], ...]


class ImagePolicy(Protocol):
    """The questions that the simulator, or a real dispatcher, asks a policy."""

    def start(self, workers: Sequence[Worker]) -> None:
        """Takes the list of workers and starts with empty stores."""
        ...

    def submit(self, task: Task, now: float) -> None:
        """Accepts an arriving task."""
        ...

    def next(self, worker: int, now: float) -> Decision | None:
        """Returns what a free worker does next, or None if there is nothing for it now."""
        ...

    def done(self, worker: int, task: Task, now: float, seconds: float) -> None:
        """Records that a worker has finished a task after `seconds` of service."""
        ...

    def tick(self, now: float) -> None:
        """Is called every five seconds."""
        ...


@dataclass
class Store:
    """A store with a few places. When it is full, the oldest (fifo), least recently (lru) or least often used (lfu, then lru) leaves."""

    capacity: int
    rule: Literal["fifo", "lru", "lfu"]
    held: dict[int, list[int]] = field(default_factory=dict)  # number: [uses, turn of the last use]
    turn: int = 0

    def __contains__(self, number: int) -> bool:
        return number in self.held

    def use(self, number: int, keep: Sequence[int] = ()) -> tuple[bool, list[int]]:
        """Returns (whether it was there, what left for it); those in `keep` stay. Without capacity it passes through."""
        self.turn += 1
        if number in self.held:
            entry = self.held[number]
            entry[0] += 1
            if self.rule == "lru":
                del self.held[number]
                self.held[number] = entry
            entry[1] = self.turn
            return True, []
        gone: list[int] = []
        while self.held and len(self.held) >= self.capacity:
            free = [k for k in self.held if k not in keep]
            if not free:
                return False, gone
            out = min(free, key=lambda k: (self.held[k][0], self.held[k][1])) if self.rule == "lfu" else free[0]
            del self.held[out]
            gone.append(out)
        if self.capacity > 0:
            self.held[number] = [1, self.turn]
        return False, gone


class CachingPolicy:
    """Sends each task to a worker at its arrival, which serves first come, first served; stores at every level follow one rule.

    `route` is random, round-robin, least-loaded (by the expected seconds queued) or affinity (the least loaded of the workers that hold its
    base model and LoRAs, unless that one has more queued than the least loaded of all by more than a load would take).
    """

    #: Seconds by which the queue of a worker that holds everything may be longer; about the load time of a base model.
    WORTH_S = 23.0

    def __init__(self, route: str, rule: Literal["fifo", "lru", "lfu"], seed: int = 0) -> None:
        self.route, self.rule, self.seed = route, rule, seed

    def start(self, workers: Sequence[Worker]) -> None:
        """Takes the list of workers and starts with empty stores."""
        self.workers = tuple(workers)
        n, nodes = len(workers), 1 + max(w.node for w in workers)
        self.queues: list[deque[Task]] = [deque() for _ in range(n)]
        self.load = [0.0] * n
        self.bases = [Store(w.bases, self.rule) for w in workers]
        self.loras = [Store(w.loras, self.rule) for w in workers]
        self.host = [Store(HOST_LORAS, self.rule) for _ in range(nodes)]
        self.ssd = [Store(SSD_LORAS, self.rule) for _ in range(nodes)]
        self.turn = 0

    def _least(self, among: Sequence[int]) -> int:
        return min(among, key=lambda w: (self.load[w], self.workers[w].step_s, w))

    def _route(self, task: Task) -> int:
        n = len(self.workers)
        self.turn += 1
        if self.route == "round-robin":
            return (self.turn - 1) % n
        if self.route == "random":
            return zlib.crc32(f"{self.seed}/{task.number}".encode()) % n
        best = self._least(range(n))
        if self.route == "affinity":
            having = [w for w in range(n) if task.base in self.bases[w]]
            full = [w for w in having if all(a in self.loras[w] for a in task.loras)]
            for group in (full, having):
                if group:
                    near = self._least(group)
                    if self.load[near] <= self.load[best] + self.WORTH_S:
                        return near
        return best

    def submit(self, task: Task, now: float) -> None:
        """Accepts an arriving task."""
        w = self._route(task)
        self.queues[w].append(task)
        self.load[w] += self.workers[w].service_s(task)

    def next(self, worker: int, now: float) -> Decision | None:
        """Returns the worker's oldest task."""
        if not self.queues[worker]:
            return None
        task = self.queues[worker].popleft()
        loads: list[Load] = []
        gone: list[tuple[int, int]] = []
        there, left = self.bases[worker].use(task.base)
        gone += [(BASE, b) for b in left]
        if not there:
            loads.append(Load(BASE, task.base, REMOTE))
        for a in task.loras:
            there, left = self.loras[worker].use(a, task.loras)
            gone += [(LORA, b) for b in left]
            if not there:
                node = self.workers[worker].node
                on_host, _ = self.host[node].use(a)
                on_ssd = on_host or self.ssd[node].use(a)[0]
                loads.append(Load(LORA, a, HOST if on_host else SSD if on_ssd else REMOTE))
        return Decision(task, tuple(loads), tuple(gone))

    def done(self, worker: int, task: Task, now: float, seconds: float) -> None:
        """Reduces the worker's expected queue."""
        self.load[worker] = max(0.0, self.load[worker] - self.workers[worker].service_s(task))

    def tick(self, now: float) -> None:
        """Does nothing."""
