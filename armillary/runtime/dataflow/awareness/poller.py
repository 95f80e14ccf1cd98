"""One service per API that asks, without waiting, which kernels have ended, and completes the events of their tasks.

Idle workers of the run call it, or a thread of the task runtime when all workers are busy. Streams are in order, so only the first pending
event of each is asked. The period adapts: it halves, down to `LEAST_S`, while events complete, and doubles, up to `MOST_S`, while none do.
While nothing is pending the service is not registered and costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from armillary.tasks.events import serve

FIRST_S, LEAST_S, MOST_S = 50e-6, 10e-6, 1e-3


class Pending:
    """One kernel that was enqueued: its event, and what is to be done at its end."""

    __slots__ = ("_calls", "_lock", "ended", "error", "event", "lane")

    def __init__(self, event: Any = None) -> None:
        self.event = event
        #: Where it stands, once it is enqueued.
        self.lane: Lane | None = None
        self.ended = False
        self.error: BaseException | None = None
        self._calls: list[Callable[[BaseException | None], None]] = []
        self._lock = threading.Lock()

    def then(self, call: Callable[[BaseException | None], None]) -> None:
        """Calls back with the kernel's error or None; at once if it has ended."""
        with self._lock:
            if not self.ended:
                self._calls.append(call)
                return
        call(self.error)

    def end(self, error: BaseException | None) -> None:
        """Records the end, once."""
        with self._lock:
            if self.ended:
                return
            self.ended, self.error = True, error
            calls, self._calls = self._calls, []
        for call in calls:
            call(error)


class Lane:
    """A stream of an API with its kernels that have not been seen to end, in order."""

    __slots__ = ("number", "pending", "stream")

    def __init__(self, number: int, stream: Any) -> None:
        self.number, self.stream = number, stream
        self.pending: deque[Pending] = deque()


class Poller:
    """The pending kernels of one API, lane by lane."""

    def __init__(self, lanes: list[Lane], period: float | None = None) -> None:
        self._lanes = lanes
        self._fixed = period
        self.period = period or FIRST_S
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._registered = False
        #: Calls of the service, events that it asked, and kernels that it saw end; and the CPU seconds that it took.
        self.calls = self.asked = self.completed = 0
        self.cpu_s = 0.0

    def add(self, lane: Lane, pending: Pending) -> None:
        """Watches a kernel, which is the last one of its lane."""
        with self._lock:
            lane.pending.append(pending)
            register = not self._registered
            self._registered = True
            if register and self._fixed is None:
                self.period = FIRST_S
        if register:
            serve(self.ask, lambda: self.period)

    @property
    def outstanding(self) -> int:
        """Kernels that have not been seen to end."""
        return sum(len(lane.pending) for lane in self._lanes)

    def ask(self) -> bool:
        """Walks the lanes once; True when nothing is pending any more."""
        if not self._asking.acquire(blocking=False):
            return False
        try:
            began = time.thread_time_ns()
            before = self.completed
            for lane in self._lanes:
                self._walk(lane)
            self.calls += 1
            if self._fixed is None:
                self.period = max(LEAST_S, self.period / 2) if self.completed > before else min(MOST_S, self.period * 2)
            self.cpu_s += (time.thread_time_ns() - began) * 1e-9
        finally:
            self._asking.release()
        with self._lock:
            if self.outstanding == 0:
                self._registered = False
                return True
        return False

    def _walk(self, lane: Lane) -> None:
        while lane.pending:
            first = lane.pending[0]
            error = None
            self.asked += 1
            try:
                if not first.ended and not first.event.done():
                    return
            except BaseException as raised:
                error = raised
            # It leaves the list before its successors are released, so that they find the lane idle.
            lane.pending.popleft()
            self.completed += 1
            first.end(error)

    def drain(self) -> None:
        """Waits for everything that is pending, and forgets errors: streams stay usable after a run that failed."""
        while self.outstanding:
            for lane in self._lanes:
                last = lane.pending[-1] if lane.pending else None
                if last is not None:
                    try:
                        last.event.wait()
                    except BaseException as raised:
                        last.end(raised)
            self.ask()
