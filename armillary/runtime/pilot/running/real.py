"""A real case: what is started on this machine, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: Real dummy tasks sleep a hundredth of the published 180 s.
DUMMY_S = 1.8


@dataclass(frozen=True)
class RealWork:
    """Equal tasks: how many executables and functions, the seconds that each sleeps, and the places where they run at a time."""

    executables: int = 0
    functions: int = 0
    seconds: float = 0.0
    nodes: int = 1
    slots: int = 2
    #: Functions are called over batches of arguments, as `map` with chunks does, instead of being a task each.
    batched: bool = False

    @property
    def tasks(self) -> int:
        """All of them."""
        return self.executables + self.functions

    @property
    def workers(self) -> int:
        """Places in all."""
        return self.nodes * self.slots

    @property
    def command(self) -> list[str]:
        """What an executable task runs."""
        return ["sleep", f"{self.seconds:g}"] if self.seconds else ["true"]


@dataclass(frozen=True)
class Ran:
    """Seconds until the first task could start, seconds from the first submission to the last result, and how many tasks ended well.

    `latency` are seconds from submission to the start of each function's body, where bodies said when they started.
    """

    bootstrap: float
    makespan: float
    done: int
    latency: list[float] = field(default_factory=list)
    #: Anything else that a technique found out, for the tables.
    said: dict[str, Any] = field(default_factory=dict)


def stamped(seconds: float) -> float:
    """The body of a function task: sleeps and says when it began, on the clock that all processes of this machine share."""
    began = time.monotonic()
    if seconds:
        time.sleep(seconds)
    return began


def timed_run(work: RealWork, bootstrap: float, start: Callable[[], tuple[list[Any], list[Any]]]) -> Ran:
    """Runs `start`, which submits everything and waits for (results of executables, results of functions), and counts what came back."""
    began = time.monotonic()
    codes, stamps = start()
    makespan = time.monotonic() - began
    done = sum(code == 0 for code in codes) + len(stamps)
    return Ran(bootstrap, makespan, done, [max(0.0, stamp - began) for stamp in stamps])
