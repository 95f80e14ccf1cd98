"""How far a run is: which tasks may start, which never will. A machine without threads, clocks or I/O; executors drive it.

A task waits, is ready, and ends: done, failed or cancelled. It is ready when its predecessors are done and it holds the tokens of its
commuting accesses; it gives them back when it ends.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph, Task

WAITING, READY, DONE, FAILED, CANCELLED = range(5)
#: Names of the last three in traces.
ENDS = {DONE: "done", FAILED: "failed", CANCELLED: "cancelled"}


class Progress:
    """What has happened to each task of a graph, and what may happen next."""

    def __init__(self, graph: Graph, on_error: str = "stop") -> None:
        self.graph = graph
        #: Unfinished predecessors and state of each task, by number.
        self.missing = [len(task.before) for task in graph.tasks]
        self.state = bytearray(len(graph.tasks))
        #: Tasks that have not ended.
        self.left = len(graph.tasks)
        #: True once a failure means that nothing new starts.
        self.stopped = False
        self._stop_on_error = on_error == "stop"
        self._held: set[int] = set()
        self._parked: dict[int, list[tuple[float, int]]] = {}

    def start(self) -> list[Task]:
        """The tasks that are ready at the beginning, in the order of submission."""
        return [task for task in self.graph.tasks if not self.missing[task.id] and self._admit(task)]

    def join(self, task: Task) -> bool:
        """A task was added to the graph in mid-run; True when it is ready. It is cancelled when a predecessor did not end well."""
        states = [self.state[number] for number in task.before]
        self.missing.append(sum(state in (WAITING, READY) for state in states))
        self.state.append(WAITING)
        self.left += 1
        if any(state in (FAILED, CANCELLED) for state in states):
            self.state[task.id] = CANCELLED
            self.left -= 1
            return False
        return not self.missing[task.id] and self._admit(task)

    def refuse(self, task: Task) -> None:
        """A task was added to the graph in mid-run and can never start."""
        self.missing.append(0)
        self.state.append(CANCELLED)

    def done(self, task: Task) -> list[Task]:
        """The task ended well: which tasks are ready now."""
        self.state[task.id] = DONE
        self.left -= 1
        ready = [] if task.excludes is None else self._release(task)
        missing, tasks = self.missing, self.graph.tasks
        for number in task.after:
            count = missing[number] = missing[number] - 1
            if not count and self.state[number] == WAITING:
                follower = tasks[number]
                if follower.excludes is None:
                    self.state[number] = READY
                    ready.append(follower)
                elif self._admit(follower):
                    ready.append(follower)
        return ready

    def fail(self, task: Task) -> tuple[list[Task], list[Task]]:
        """The task failed for good: (tasks that are ready now, tasks that are cancelled because they depend on it)."""
        self.state[task.id] = FAILED
        self.left -= 1
        if self._stop_on_error:
            self.stopped = True
        cancelled: list[Task] = []
        reached = [task]
        while reached:
            for number in reached.pop().after:
                if self.state[number] == WAITING:
                    self.state[number] = CANCELLED
                    self.left -= 1
                    cancelled.append(self.graph.tasks[number])
                    reached.append(cancelled[-1])
        return ([] if task.excludes is None else self._release(task)), cancelled

    def cancel_rest(self, running: set[int] = frozenset()) -> list[Task]:  # type: ignore[assignment]
        """Cancel every task that has not ended, except those that run."""
        rest = [task for task in self.graph.tasks if self.state[task.id] in (WAITING, READY) and task.id not in running]
        for task in rest:
            self.state[task.id] = CANCELLED
        self.left -= len(rest)
        return rest

    def _admit(self, task: Task) -> bool:
        if task.excludes is not None:
            for token in task.excludes:
                if token in self._held:
                    heappush(self._parked.setdefault(token, []), (-task.priority, task.id))
                    return False
            self._held.update(task.excludes)
        self.state[task.id] = READY
        return True

    def _release(self, task: Task) -> list[Task]:
        self._held.difference_update(task.excludes or ())
        ready = []
        for token in task.excludes or ():
            parked = self._parked.get(token)
            while parked and token not in self._held:
                other = self.graph.tasks[heappop(parked)[1]]
                if self.state[other.id] == WAITING and self._admit(other):
                    ready.append(other)
        return ready
