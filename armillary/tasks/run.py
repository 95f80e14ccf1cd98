"""What came of running a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.tasks.graph import Task
    from armillary.tasks.trace import Trace


class WorkerLost(RuntimeError):
    """Workers died again and again without finishing anything."""


@dataclass
class Run:
    """What came of running a graph: the trace, the results, and what went wrong."""

    trace: Trace
    #: From the start of the run to the end of its last task: wall seconds, or simulated ones.
    seconds: float
    #: Key of each failed task to what its body raised, and the keys of those that were cancelled.
    failed: dict[str, BaseException] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    results: dict[int, Any] = field(default_factory=dict)
    #: Seconds that bodies on threads waited for something else than themselves (the interpreter lock, I/O): wall minus CPU time.
    gil_wait: float = 0.0

    def result(self, task: Task) -> Any:
        """What the task's body returned; raises what it raised."""
        if task.key in self.failed:
            raise self.failed[task.key]
        if task.key in self.cancelled:
            raise InputError(f"task {task.key} was cancelled: it has no result")
        return self.results.get(task.id)

    def raise_first(self) -> Run:
        """Raise what the first failed task raised, with the task's key in a note; the run itself when none failed."""
        for key, error in self.failed.items():
            error.add_note(f"raised by task {key}")
            raise error
        return self
