"""The outcome of running a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.tasks.graph import Task
    from armillary.tasks.trace import Trace


class WorkerLost(RuntimeError):
    """Workers died repeatedly without finishing a task."""


@dataclass
class Run:
    """The outcome of running a graph: the trace, the results, and the failures."""

    trace: Trace
    #: Seconds from the start of the run to the end of its last task, in wall time or simulated time.
    seconds: float
    #: The exception of each failed task by key, and the keys of the cancelled tasks.
    failed: dict[str, BaseException] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    results: dict[int, Any] = field(default_factory=dict)
    #: Seconds that bodies on threads waited for the interpreter lock or I/O: wall time minus CPU time.
    gil_wait: float = 0.0

    def result(self, task: Task) -> Any:
        """The return value of the task's body; if the body raised, the exception is raised."""
        if task.key in self.failed:
            raise self.failed[task.key]
        if task.key in self.cancelled:
            raise InputError(f"task {task.key} was cancelled and has no result")
        return self.results.get(task.id)

    def raise_first(self) -> Run:
        """Raises the exception of the first failed task, with its key in a note; returns the run itself if none failed."""
        for key, error in self.failed.items():
            error.add_note(f"raised by task {key}")
            raise error
        return self
