"""The progress of a run: which tasks may start, and which never will. It is a state machine without threads, clocks or I/O, driven by
executors.

A task waits, becomes ready, and ends as done, failed or cancelled. It is ready when its predecessors are done and it holds the tokens of
its commuting accesses, which it releases when it ends.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph, Task

WAITING, READY, DONE, FAILED, CANCELLED = range(5)
#: The names of the last three states in traces.
ENDS = {DONE: "done", FAILED: "failed", CANCELLED: "cancelled"}


class Progress:
    """The state of each task of a graph, and the tasks that may start next."""

    def __init__(self, graph: Graph, on_error: str = "stop") -> None:
        self.graph = graph
        #: The number of unfinished predecessors and the state of each task, by number.
        self.missing = [len(task.before) for task in graph.tasks]
        self.state = bytearray(len(graph.tasks))
        #: The number of tasks that have not ended.
        self.left = len(graph.tasks)
        #: Whether a failure has stopped new tasks from starting.
        self.stopped = False
        self._stop_on_error = on_error == "stop"
        self._held: set[int] = set()
        self._parked: dict[int, list[tuple[float, int]]] = {}

    def start(self) -> list[Task]:
        """The tasks that are ready at the beginning, in the order of submission."""
        return [task for task in self.graph.tasks if not self.missing[task.id] and self._admit(task)]

    def join(self, task: Task) -> bool:
        """Adds a task during the run; returns whether it is ready. It is cancelled if a predecessor did not succeed."""
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
        """Records that a task that was added during the run can never start."""
        self.missing.append(0)
        self.state.append(CANCELLED)

    def done(self, task: Task) -> list[Task]:
        """Records that the task succeeded; returns the tasks that are ready now."""
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
        """Records that the task failed for good; returns (tasks that are ready now, tasks that are cancelled because they depend on it)."""
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
        """Cancels every task that has not ended, except those that run."""
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
