"""Work that continues after a body has returned; a task ends when its body has returned and its events have happened.

    def body(x):
        with external(2) as event:
            launch(x, done=event.complete)

The worker is free as soon as the body returns. `complete` may be called from any thread, even before the body returns.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from typing import Any

_local = threading.local()


class Unfinished(RuntimeError):
    """A run ended with events that can no longer happen; the message names the tasks."""


class TooManyCompletions(RuntimeError):
    """An event was completed more often than announced."""


class Context:
    """One attempt at one task, as its body sees it through `current()`."""

    def __init__(
        self, key: str, attempt: int, settle: Callable[[Context], None], add: Callable[..., Any], data: Callable[[str], Any]
    ) -> None:  # fmt: skip
        #: The key of the task, and the number of the attempt, from 1.
        self.key = key
        self.attempt = attempt
        #: Events announced and not yet completed, plus one while the body runs.
        self._pending = 1
        self._lock = threading.Lock()
        self._settle = settle
        self._add = add
        self._data = data
        self.error: BaseException | None = None
        #: Whether an event can no longer be completed, because every reference to it is gone.
        self.abandoned = False

    def add(self, call: Callable[..., Any] | None, *args: Any, **how: Any) -> Any:
        """Submits another task to the running graph, with the parameters of `Graph.add`; no existing task depends on it.

        Returns an object that stands for the task in the arguments of tasks that this body adds later. If a body is retried and adds a task
        under the same key, it gets the task that it added before.
        """
        return self._add(call, *args, **how)

    def data(self, name: str) -> Any:
        """The handle of that name, for the arguments and accesses of tasks to add, even if the graph is in another process."""
        return self._data(name)

    def announce(self, count: int) -> None:
        """Announces `count` more completions."""
        with self._lock:
            self._pending += count

    def settle(self, count: int = 1, error: BaseException | None = None) -> None:
        """Records that `count` pending events have happened; the last one ends the task."""
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
        """Completes one of the announced events. Arguments are ignored, so that it fits most callbacks."""
        with self._lock:
            if not self._left:
                raise TooManyCompletions(f"task {self._context.key}: completed more often than announced")
            self._left -= 1
        self._context.settle()

    def fail(self, error: BaseException) -> None:
        """Fails the task; events that are still pending no longer count."""
        with self._lock:
            left, self._left = self._left, 0
        if not left:
            raise TooManyCompletions(f"task {self._context.key}: failed after its last completion")
        self._context.settle(left, error)

    def __del__(self) -> None:
        # Nothing is left that could complete it, so the run must not wait forever.
        if getattr(self, "_left", 0):
            self._context.abandoned = True
            self._context.settle(self._left, Unfinished(f"task {self._context.key}: {self._left} announced events can no longer happen"))


class external:
    """Announces `count` completions from inside a body; `with external(2) as event:` gives the object that completes them."""

    def __init__(self, count: int = 1) -> None:
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"external: found {count!r}; expected a whole number from 1")
        self._count = count

    def __enter__(self) -> External:
        return External(current(), self._count)

    def __exit__(self, *exception: object) -> None:
        return None


def current() -> Context:
    """The task that this thread runs, with `.key`, `.attempt`, `.add(...)` to submit more tasks and `.data(name)` to name the data that
    they access.
    """
    make = getattr(_local, "make", None)
    if make is None:
        raise RuntimeError("current() and external() are for bodies: no task runs in this thread")
    if _local.context is None:
        _local.context = make()
    context: Context = _local.context
    return context


def enter(make: Callable[[], Context]) -> None:
    """A worker starts a body; `make()` creates its context if the body asks for it."""
    _local.make = make
    _local.context = None


def leave() -> Context | None:
    """The body has returned; returns its context if it asked for one."""
    context: Context | None = _local.context
    _local.make = _local.context = None
    return context


#: A separate thread polls if no worker has been idle for this long (in seconds).
IDLE_S = 1e-3


class _Polls:
    """The conditions to poll, by idle workers or else by a thread that lives while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._due: list[tuple[float, int, float | Callable[[], float], Callable[[], bool], External | None]] = []
        self._count = 0
        self._alive = False
        self._idle_at = -math.inf

    def add(self, ask: Callable[[], bool], every: float | Callable[[], float], event: External | None) -> None:
        with self._lock:
            self._count += 1
            heapq.heappush(self._due, (time.monotonic(), self._count, every, ask, event))
            if not self._alive:
                self._alive = True
                threading.Thread(target=self._watch, name="armillary-polls", daemon=True).start()

    def serve(self) -> float:
        """Polls what is due, unless another thread does; returns the seconds until more is due, at most `IDLE_S`."""
        self._idle_at = time.monotonic()
        return self._ask()

    def _ask(self) -> float:
        if not self._asking.acquire(blocking=False):
            return IDLE_S
        try:
            while True:
                with self._lock:
                    if not self._due:
                        return 0.0
                    wait = self._due[0][0] - time.monotonic()
                    if wait > 0:
                        return min(wait, IDLE_S)
                    _, number, every, ask, event = heapq.heappop(self._due)
                if self._happened(ask, event):
                    return 0.0
                wait = every() if callable(every) else every
                with self._lock:
                    heapq.heappush(self._due, (time.monotonic() + wait, number, every, ask, event))
        finally:
            self._asking.release()

    def _happened(self, ask: Callable[[], bool], event: External | None) -> bool:
        try:
            if not ask():
                return False
        except BaseException as error:
            if event is not None:
                event.fail(error)
            return True
        if event is not None:
            event.complete()
        return True

    def _watch(self) -> None:
        while True:
            wait = IDLE_S - (time.monotonic() - self._idle_at)
            if wait <= 0:
                wait = self._ask()
            if wait > 0:
                time.sleep(wait)
            with self._lock:
                if not self._due and not self._asking.locked():
                    self._alive = False
                    return


_polls = _Polls()
#: For idle workers: polls what is due and returns the seconds until more is due, at most `IDLE_S`.
serve_polls = _polls.serve


def polling() -> bool:
    """Whether there is anything to poll."""
    return bool(_polls._due)


def poll(ask: Callable[[], bool], every: float = 50e-6) -> None:
    """Calls `ask()` about every `every` seconds until it returns True; inside a body, the task waits for that.

    An idle worker thread polls, or a separate thread if none has been idle for 1 ms. Use it to watch CUDA and OpenCL events, as in
    `poll(event.query)`. An exception in `ask` fails the task.
    """
    inside = getattr(_local, "make", None) is not None
    _polls.add(ask, every, External(current(), 1) if inside else None)


def serve(ask: Callable[[], bool], every: Callable[[], float]) -> None:
    """Calls `ask()` until it returns True, as `poll` does, for no task in particular; `every()` says how many seconds to leave in between.

    For a service that watches the work of many tasks, and that adapts how often it looks.
    """
    _polls.add(ask, every, None)
