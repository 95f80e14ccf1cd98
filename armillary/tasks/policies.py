"""Policies: which of the ready tasks goes first.

A policy is an object with `push(task)`, `pop(worker) -> task | None` and `on_finish(task, worker, seconds)`, called by one thread at a
time. A policy that needs the graph and the workers in advance also has `prepare(graph, site)`; one that keeps tasks for a worker has
`lost(workers)`, which is called when workers die. `put_back(tasks)` returns tasks that were popped but could not start, in the order of
popping.
"""

from __future__ import annotations

import random
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.tasks.graph import Task

#: The policies of real executors.
REAL = ("fifo", "lifo", "priority", "random", "steal")
#: The policies that only virtual workers have, because they need costs.
PLACING = ("heft", "dm", "dmda", "locality")


class Policy(Protocol):
    """What an executor expects of a policy."""

    def push(self, task: Task) -> None:
        """Takes a task that is ready."""

    def pop(self, worker: int) -> Task | None:
        """The next task of this worker, or None if there is none."""

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Records that a task succeeded on a worker; the tasks that it made ready are pushed next."""


class Fifo:
    """Takes the task that has been ready longest."""

    def __init__(self) -> None:
        self._ready: deque[Task] = deque()
        self.push = self._ready.append

    def pop(self, worker: int) -> Task | None:
        """The oldest task."""
        return self._ready.popleft() if self._ready else None

    def put_back(self, tasks: list[Task]) -> None:
        """Puts tasks back as the oldest."""
        self._ready.extendleft(reversed(tasks))

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Does nothing."""


class Lifo:
    """Takes the task that became ready last, whose data is still in the caches."""

    def __init__(self) -> None:
        self._ready: list[Task] = []
        self.push = self._ready.append

    def pop(self, worker: int) -> Task | None:
        """The newest task."""
        return self._ready.pop() if self._ready else None

    def put_back(self, tasks: list[Task]) -> None:
        """Puts tasks back as the newest."""
        self._ready.extend(reversed(tasks))

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Does nothing."""


class Priority:
    """Takes the task with the largest priority, and the earliest submitted among equals."""

    def __init__(self) -> None:
        self._ready: list[tuple[float, int, Task]] = []

    def push(self, task: Task) -> None:
        """Takes a task that is ready."""
        heappush(self._ready, (-task.priority, task.id, task))

    def pop(self, worker: int) -> Task | None:
        """The most urgent task."""
        return heappop(self._ready)[2] if self._ready else None

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Does nothing."""


class Random:
    """Takes any ready task with equal probability."""

    def __init__(self, seed: int = 0) -> None:
        self._ready: list[Task] = []
        self._random = random.Random(seed)
        self.push = self._ready.append

    def pop(self, worker: int) -> Task | None:
        """A random task."""
        ready = self._ready
        if not ready:
            return None
        at = self._random.randrange(len(ready))
        ready[at], ready[-1] = ready[-1], ready[at]
        return ready.pop()

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Does nothing."""


class Steal:
    """Each worker takes the task that it made ready last; a worker without tasks takes the oldest of a random other worker.

    Blumofe and Leiserson, Scheduling multithreaded computations by work stealing, JACM 1999.
    """

    def __init__(self, workers: int, seed: int = 0) -> None:
        self._own: list[deque[Task]] = [deque() for _ in range(workers)]
        self._random = random.Random(seed)
        self._here = 0
        self._first = 0

    def push(self, task: Task) -> None:
        """Takes a task that is ready; it goes to the worker that finished last, or to the workers in turn at the beginning."""
        if self._first >= 0:
            self._own[self._first % len(self._own)].append(task)
            self._first += 1
        else:
            self._own[self._here].append(task)

    def pop(self, worker: int) -> Task | None:
        """The newest of its own tasks, or else the oldest of another worker."""
        own = self._own[worker]
        if own:
            return own.pop()
        victims = [queue for queue in self._own if queue]
        return victims[self._random.randrange(len(victims))].popleft() if victims else None

    def put_back(self, tasks: list[Task]) -> None:
        """Puts tasks back at the end from which the worker popped them."""
        self._own[self._here].extend(reversed(tasks))

    def on_finish(self, task: Task, worker: int, seconds: float) -> None:
        """Records that the tasks pushed next belong to this worker."""
        self._here, self._first = worker, -1


def policy_for(policy: Any, workers: int, seed: int, offered: tuple[str, ...] = REAL) -> Any:
    """A new policy of that name (fifo if None), or the given object."""
    if policy is None or isinstance(policy, str):
        name = policy or "fifo"
        if name not in offered:
            if name in PLACING:
                raise InputError(f'policy "{name}" needs costs and runs on virtual workers; here: {", ".join(offered)}')
            raise unknown("policy", name, offered)
        made: dict[str, Any] = {
            "fifo": Fifo, "lifo": Lifo, "priority": Priority, "random": lambda: Random(seed), "steal": lambda: Steal(workers, seed),
        }  # fmt: skip
        if name in made:
            return made[name]()
        from armillary.tasks.placement import placing

        return placing(name)
    for method in ("push", "pop", "on_finish"):
        if not callable(getattr(policy, method, None)):
            raise InputError(f"policy of type {type(policy).__name__} has no {method}(); expected a name or push, pop and on_finish")
    return policy
