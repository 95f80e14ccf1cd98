"""Work that goes on after a body has returned: a task ends when its body has returned and its events have happened.

    def body(x):
        with external(2) as event:
            launch(x, done=event.complete)

The worker is free as soon as the body returns. `complete` may be called from any thread, also before the body returns.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.tasks.graph import Task

_local = threading.local()


class Unfinished(RuntimeError):
    """A run came to its end with events that can no longer happen; the message names the tasks."""


class TooManyCompletions(RuntimeError):
    """An event was completed more often than announced."""


class Context:
    """One attempt at one task, as its body sees it through `current()`."""

    def __init__(self, key: str, attempt: int, settle: Callable[[Context], None], add: Callable[..., Any] | None = None) -> None:
        #: The task's key and which attempt this is, from 1.
        self.key = key
        self.attempt = attempt
        #: Events announced and not yet completed, plus one while the body runs.
        self._pending = 1
        self._lock = threading.Lock()
        self._settle = settle
        self._add = add
        self.error: BaseException | None = None
        #: True when an event was forgotten by everyone who could have completed it.
        self.abandoned = False

    def add(self, call: Callable[..., Any], *args: Any, **how: Any) -> Task:
        """Submit another task to the running graph, with the parameters of `Graph.add`; nothing that runs comes to depend on it."""
        if self._add is None:
            raise RuntimeError(f"task {self.key}: this executor does not let a body add tasks; Threads and Virtual do")
        task: Task = self._add(call, *args, **how)
        return task

    def announce(self, count: int) -> None:
        """Expect `count` completions more."""
        with self._lock:
            self._pending += count

    def settle(self, count: int = 1, error: BaseException | None = None) -> None:
        """`count` of what was pending has happened; the last one ends the task."""
        with self._lock:
            if error is not None and self.error is None:
                self.error = error
            self._pending -= count
            last = self._pending == 0
        if last:
            self._settle(self)


class External:
    """Completions that a task waits for."""

    def __init__(self, context: Context, count: int) -> None:
        self._context = context
        self._left = count
        self._lock = threading.Lock()
        context.announce(count)

    def complete(self, *_: Any) -> None:
        """One of the announced events has happened. Arguments are ignored, so it fits most callbacks."""
        with self._lock:
            if not self._left:
                raise TooManyCompletions(f"task {self._context.key}: completed more often than announced")
            self._left -= 1
        self._context.settle()

    def fail(self, error: BaseException) -> None:
        """The work failed, and the task with it; events still pending no longer count."""
        with self._lock:
            left, self._left = self._left, 0
        if not left:
            raise TooManyCompletions(f"task {self._context.key}: failed after its last completion")
        self._context.settle(left, error)

    def __del__(self) -> None:
        # Nobody is left who could complete it: the run must not wait forever.
        if getattr(self, "_left", 0):
            self._context.abandoned = True
            self._context.settle(self._left, Unfinished(f"task {self._context.key}: {self._left} announced events can no longer happen"))


class external:
    """Announce `count` completions from inside a body; `with external(2) as event:` gives what completes them."""

    def __init__(self, count: int = 1) -> None:
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"external: found {count!r}; expected a whole number from 1")
        self._count = count

    def __enter__(self) -> External:
        return External(current(), self._count)

    def __exit__(self, *exception: object) -> None:
        return None


def current() -> Context:
    """The task that this thread runs: `.key`, `.attempt`, and `.add(...)` to submit more work."""
    make = getattr(_local, "make", None)
    if make is None:
        raise RuntimeError("current() and external() are for bodies: no task runs in this thread")
    if _local.context is None:
        _local.context = make()
    context: Context = _local.context
    return context


def enter(make: Callable[[], Context]) -> None:
    """A worker starts a body: `make()` gives its context if the body asks for it."""
    _local.make = make
    _local.context = None


def leave() -> Context | None:
    """The body returned: its context, when it asked for one."""
    context: Context | None = _local.context
    _local.make = _local.context = None
    return context


class _Polls:
    """One thread that asks, while there is something to ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: list[tuple[float, int, float, Callable[[], bool], External | None]] = []
        self._count = 0
        self._alive = False

    def add(self, ask: Callable[[], bool], every: float, event: External | None) -> None:
        with self._lock:
            self._count += 1
            heapq.heappush(self._due, (time.monotonic(), self._count, every, ask, event))
            if not self._alive:
                self._alive = True
                threading.Thread(target=self._serve, name="armillary-polls", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    self._alive = False
                    return
                due, number, every, ask, event = heapq.heappop(self._due)
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            try:
                happened = ask()
            except BaseException as error:
                if event is not None:
                    event.fail(error)
                continue
            if happened:
                if event is not None:
                    event.complete()
            else:
                with self._lock:
                    heapq.heappush(self._due, (time.monotonic() + every, number, every, ask, event))


_polls = _Polls()


def poll(ask: Callable[[], bool], every: float = 50e-6) -> None:
    """Call `ask()` about every `every` seconds until it returns True; inside a body, the task waits for that.

    This is how CUDA and OpenCL events are watched: `poll(event.query)`. What `ask` raises fails the task.
    """
    inside = getattr(_local, "make", None) is not None
    _polls.add(ask, every, External(current(), 1) if inside else None)
