"""A task: what a user describes, what the agent keeps while it lives, and what is left of an executable when it has ended.

A task passes NEW, SCHEDULING, SCHEDULED, LAUNCHING and RUNNING and ends as DONE, FAILED or CANCELED. Each state is stamped once, in this
order; a second attempt is a row of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from armillary.errors import InputError

NEW, SCHEDULING, SCHEDULED, LAUNCHING, RUNNING, DONE, FAILED, CANCELED = range(8)
STATES = ("NEW", "SCHEDULING", "SCHEDULED", "LAUNCHING", "RUNNING", "DONE", "FAILED", "CANCELED")


class Lost(RuntimeError):
    """The process that ran a task, or the runtime that was to run it, died."""


class NeverRan(RuntimeError):
    """A task that waited for one that failed, or that no living runtime can take."""


@dataclass(frozen=True)
class Task:
    """A command or a function, and what it needs.

    command: an executable with its arguments. function: something to call, with `args` and `kwargs`. `ranks` processes are spread evenly
    over `nodes` nodes; each has `cores_per_rank` cores and `gpus_per_rank` GPUs. after: futures of tasks that must have ended well before.
    `retries` counts further attempts after the death of a runtime or a worker; a task that fails by itself is never repeated.
    """

    command: Sequence[str] = ()
    function: Callable[..., Any] | None = None
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    nodes: int = 1
    ranks: int = 1
    cores_per_rank: int = 1
    gpus_per_rank: int = 0
    after: Sequence[Future[Any]] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | os.PathLike[str] | None = None
    stage: str = ""
    retries: int | None = None

    def __post_init__(self) -> None:
        if bool(self.command) == (self.function is not None):
            raise InputError("task: expected either a command or a function")
        for name in ("nodes", "ranks", "cores_per_rank"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name}: found {value!r}; expected a whole number of at least 1")
        if isinstance(self.gpus_per_rank, bool) or not isinstance(self.gpus_per_rank, int) or self.gpus_per_rank < 0:
            raise InputError(f"gpus_per_rank: found {self.gpus_per_rank!r}; expected a whole number of at least 0")
        if self.ranks % self.nodes:
            raise InputError(f"ranks: found {self.ranks} on {self.nodes} nodes; expected the same number on every node")
        if self.function is not None and (self.nodes > 1 or self.ranks > 1):
            raise InputError("task: a function runs on one node and has one rank")
        if self.command and not all(isinstance(word, str | os.PathLike) and "\0" not in os.fspath(word) for word in self.command):
            raise InputError("command: expected words without zero bytes")

    @property
    def cores(self) -> int:
        """Cores on each node."""
        return self.ranks // self.nodes * self.cores_per_rank

    @property
    def gpus(self) -> int:
        """GPUs on each node."""
        return self.ranks // self.nodes * self.gpus_per_rank


@dataclass(frozen=True)
class Finished:
    """An executable that has ended: its exit status, the signal that killed it or 0, its process, and what it wrote.

    Of each output the first `Pilot(output_bytes=)` bytes are kept; `dropped` counts the rest.
    """

    returncode: int
    signal: int
    pid: int
    stdout: bytes
    stderr: bytes
    node: str
    attempt: int = 1
    dropped: int = 0

    def check(self) -> Finished:
        """Itself, or RuntimeError if it ended badly."""
        if self.signal or self.returncode:
            how = f"signal {self.signal}" if self.signal else f"exit status {self.returncode}"
            raise RuntimeError(f"the task ended with {how}")
        return self


class Live:
    """A task between its submission and its end."""

    __slots__ = (
        "attempt",
        "backend",
        "call",
        "ended",
        "followers",
        "future",
        "id",
        "key",
        "order",
        "place",
        "retries",
        "sequence",
        "shape",
        "stamps",
        "task",
        "waits",
        "worker",
    )  # fmt: skip

    def __init__(self, number: int, task: Task | None, call: bytes, key: Any, future: Future[Any], retries: int, now: int) -> None:
        self.id = number
        self.task = task
        #: A function with its arguments, pickled; empty for an executable.
        self.call = call
        #: What the durations of functions are remembered by.
        self.key = key
        self.future = future
        self.retries = retries
        self.attempt = 1
        self.stamps = [now, 0, 0, 0, 0]
        self.shape: Any = None
        self.waits = 0
        self.followers: list[Live] | None = None
        #: The places that it holds: (node, cores, GPUs) for each node.
        self.place: list[tuple[int, list[int], list[int]]] = []
        self.backend: Any = None
        self.order = 0
        self.worker: Any = None
        self.sequence = 0
        self.ended = False
