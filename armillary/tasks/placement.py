"""Policies that choose a worker by the expected time of a task on it; they need virtual workers, which know costs."""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.errors import unknown

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph, Task


class Heft:
    """Heterogeneous earliest finish time: a static plan from upward ranks, with insertion.

    rank_u(i) = mean cost_i + max over successors j of (mean transfer_ij + rank_u(j)); in order of decreasing rank, each task goes into the
    earliest gap of the worker on which it finishes first. Topcuoglu, Hariri and Wu, Performance-effective and low-complexity task
    scheduling for heterogeneous computing, IEEE TPDS 2002.
    """

    def prepare(self, graph: Graph, site: Any) -> None:
        """Plans the whole graph."""
        tasks, workers = graph.tasks, range(len(site.kinds))
        moved = _edge_bytes(graph)
        costs = [[site.seconds(task, w) for w in workers] for task in tasks]
        # The mean cost of an edge between two nodes, or between two memories of one node.
        near = site.place_of[0]
        far = next((p for w, p in enumerate(site.place_of) if site.node_of[w]), next((p for p in site.place_of if p != near), near))
        rank = [0.0] * len(tasks)
        for task in reversed(list(graph)):
            finite = [c for c in costs[task.id] if c < math.inf]
            tail = (site.transfer_s(moved.get((task.id, n), 0), near, far) + rank[n] for n in task.after)
            rank[task.id] = sum(finite) / max(1, len(finite)) + max(tail, default=0.0)
        #: The worker of each task, and the order of tasks of each worker.
        self.worker_of = [-1] * len(tasks)
        ends = [0.0] * len(tasks)
        busy: list[list[tuple[float, float, int]]] = [[] for _ in workers]
        depth = {task.id: i for i, task in enumerate(graph)}
        for number in sorted(range(len(tasks)), key=lambda i: (-rank[i], depth[i])):
            best: tuple[float, int, float] | None = None
            for w in workers:
                if costs[number][w] == math.inf:
                    continue
                ready = 0.0
                for n in tasks[number].before:
                    places = site.place_of[self.worker_of[n]], site.place_of[w]
                    ready = max(ready, ends[n] + site.transfer_s(moved.get((n, number), 0), *places))
                start = _gap(busy[w], ready, costs[number][w])
                if best is None or start + costs[number][w] < best[0]:
                    best = (start + costs[number][w], w, start)
            if best is None:
                raise unknown("worker kind", ",".join(tasks[number].on), set(site.kinds), where=f"task {tasks[number].key}")
            ends[number], self.worker_of[number], start = best
            bisect.insort(busy[best[1]], (start, best[0], number))
        self._orders = [deque(number for _, _, number in slots) for slots in busy]
        self._ready: dict[int, Task] = {}
        self._site = site
        #: Ready tasks that the plan no longer places, because they were added later, are retried, or were planned for a worker that died.
        self._anywhere: dict[int, Task] = {}
        self._given: set[int] = set()
        self._dead: set[int] = set()

    def planned(self, task: Task) -> int:
        """The worker that will run it, or -1 if the plan does not say."""
        return self.worker_of[task.id] if task.id < len(self.worker_of) else -1

    def push(self, task: Task) -> None:
        """Takes a task that is ready."""
        if self.planned(task) < 0 or task.id in self._given:
            self._anywhere[task.id] = task
        else:
            self._ready[task.id] = task

    def pop(self, worker: int) -> Task | None:
        """The next task in this worker's plan if it is ready, and otherwise one that the plan no longer places."""
        order = self._orders[worker]
        if order and order[0] in self._ready:
            number = order.popleft()
            self._given.add(number)
            return self._ready.pop(number)
        for task in self._anywhere.values():
            if self._site.seconds(task, worker) < math.inf:
                return self._anywhere.pop(task.id)
        return None

    def put_back(self, tasks: list[Task]) -> None:
        """Puts tasks back; they stay first in the plan."""
        for task in reversed(tasks):
            worker = self.planned(task)
            if worker < 0 or worker in self._dead:
                self._anywhere[task.id] = task
            else:
                self._given.discard(task.id)
                self._orders[worker].appendleft(task.id)
                self._ready[task.id] = task

    def lost(self, workers: Sequence[int]) -> None:
        """Handles the death of workers: tasks planned for them may go anywhere."""
        self._dead.update(workers)
        for worker in workers:
            for number in self._orders[worker]:
                self.worker_of[number] = -1
                if number in self._ready:
                    self._anywhere[number] = self._ready.pop(number)
            self._orders[worker].clear()

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Changes nothing, because the plan is static."""


class Dm:
    """The deque model (StarPU's dm): a ready task joins the worker on which it should end first; with `data`,
    transfers count too (dmda).
    """

    def __init__(self, data: bool) -> None:
        self._data = data

    def prepare(self, graph: Graph, site: Any) -> None:
        """Learns which workers there are."""
        self._site = site
        self._queues: list[deque[Task]] = [deque() for _ in site.kinds]
        self._load = [0.0] * len(site.kinds)
        self._stuck: list[Task] = []
        self._chosen: dict[int, int] = {}

    def push(self, task: Task) -> None:
        """Takes a task that is ready, and chooses its worker now."""
        site, best, at = self._site, math.inf, -1
        for worker in range(len(site.kinds)):
            end = max(self._load[worker], site.now()) + site.seconds(task, worker)
            if self._data and end < best:
                end += site.fetch_s(task, worker)
            if end < best and site.alive(worker):
                best, at = end, worker
        if at < 0:
            self._stuck.append(task)  # no worker is left that could run it
            return
        self._load[at] = best
        self._chosen[task.id] = at
        self._queues[at].append(task)

    def planned(self, task: Task) -> int:
        """The worker that will run it once it is ready, or -1 before."""
        return self._chosen.get(task.id, -1)

    def pop(self, worker: int) -> Task | None:
        """The oldest task that chose this worker."""
        return self._queues[worker].popleft() if self._queues[worker] else None

    def put_back(self, tasks: list[Task]) -> None:
        """Puts tasks back; they stay first at the workers that they chose."""
        for task in reversed(tasks):
            self._queues[self._chosen[task.id]].appendleft(task)

    def lost(self, workers: Sequence[int]) -> None:
        """Handles the death of workers: their tasks choose again."""
        for worker in workers:
            waiting, self._queues[worker] = self._queues[worker], deque()
            for task in waiting:
                self.push(task)

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Records that an idle worker is free now, whatever was expected."""
        if not self._queues[worker]:
            self._load[worker] = self._site.now()


class Locality:
    """A worker takes the ready task with the most input bytes already on its node, and the oldest among equals."""

    def prepare(self, graph: Graph, site: Any) -> None:
        """Learns which workers there are."""
        self._site = site
        self._ready: dict[int, Task] = {}

    def push(self, task: Task) -> None:
        """Takes a task that is ready."""
        self._ready[task.id] = task

    def pop(self, worker: int) -> Task | None:
        """The task with the most bytes here."""
        allowed = [t for t in self._ready.values() if self._site.seconds(t, worker) < math.inf]
        if not allowed:
            return None
        best = max(allowed, key=lambda t: self._site.bytes_here(t, worker))
        return self._ready.pop(best.id)

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Does nothing."""


def placing(name: str) -> Any:
    """A new policy of that name."""
    return {"heft": Heft, "dm": lambda: Dm(False), "dmda": lambda: Dm(True), "locality": Locality}[name]()


def _gap(slots: list[tuple[float, float, int]], ready: float, length: float) -> float:
    """The earliest start at or after `ready` at which a worker is free for `length`."""
    at = ready
    for start, end, _ in slots:
        if at + length <= start:
            return at
        at = max(at, end)
    return at


def _edge_bytes(graph: Graph) -> dict[tuple[int, int], int]:
    """The bytes of each edge: the data that the successor reads and the predecessor was the last to write."""
    from armillary.tasks.regions import covers, meet

    found: dict[tuple[int, int], int] = {}
    written: dict[int, list[tuple[Any, int]]] = {}
    for task in graph:
        for access in task.accesses:
            if access.mode != "writes":
                for box, writer in reversed(written.get(access.data.id, [])):
                    if meet(box, access.box):
                        found[writer, task.id] = found.get((writer, task.id), 0) + access.piece.nbytes
                        if covers(box, access.box):
                            break
        for access in task.accesses:
            if access.mode != "reads":
                layers = written.setdefault(access.data.id, [])
                layers[:] = [layer for layer in layers if not covers(access.box, layer[0])]
                layers.append((access.box, task.id))
    return found
