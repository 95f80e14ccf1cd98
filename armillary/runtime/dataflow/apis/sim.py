"""A device that only takes time: it has a latency and a concurrency, and a test can complete its kernels by hand.

What the variant of a kernel says is the seconds that it takes, or a callable, which the device's thread calls at the end. Nothing computes
on the host's cores meanwhile, as with a device of its own.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .api import Api, DeviceError, Kernel, Stream


class SimEvent:
    """The end of one kernel on the simulated device."""

    __slots__ = ("_api", "_calls", "_error", "_happened", "args", "kernel", "seconds", "stream")

    def __init__(self, api: Sim, stream: SimStream, kernel: Kernel, args: tuple[Any, ...], seconds: float) -> None:
        self._api, self.stream, self.kernel, self.args, self.seconds = api, stream, kernel, args, seconds
        self._error: BaseException | None = None
        self._happened = False
        self._calls: list[Callable[[], object]] = []

    def done(self) -> bool:
        """Whether the device has finished it."""
        if self._error is not None:
            raise DeviceError(f"kernel {self.kernel.name} failed: {self._error}") from self._error
        return self._happened

    def wait(self) -> None:
        """Sleeps until the device has finished it."""
        with self._api.changed:
            self._api.changed.wait_for(lambda: self._happened or self._error is not None)
        self.done()

    def end(self, error: BaseException | None) -> None:
        """Records the end; the device's lock is held."""
        self._error = error
        self._happened = error is None


class SimStream:
    """Kernels in order; only the first one may run."""

    def __init__(self, api: Sim) -> None:
        self._api = api
        self.queue: deque[SimEvent] = deque()

    def enqueue(self, kernel: Kernel, args: tuple[Any, ...]) -> SimEvent:
        """Puts a kernel behind the last one of this stream."""
        return self._api.submit(self, kernel, args)


class Sim(Api):
    """A device with `concurrency` places, each kernel taking `latency` seconds unless its variant says otherwise.

    With `manual=True` time does not pass on it: `complete(count)` ends the oldest running kernels, and `fail(error)` the oldest one.
    """

    name = "sim"
    asynchronous = True
    on_cores = False

    def __init__(self, latency: float = 1e-3, concurrency: int = 8, *, manual: bool = False) -> None:
        self.latency, self.concurrency, self.manual = latency, concurrency, manual
        self.changed = threading.Condition()
        #: Kernels that were enqueued and have not ended, those of them that run, and the most that ran at once.
        self.outstanding = 0
        self.running: list[SimEvent] = []
        self.most_running = 0
        #: Kernels in the order in which they started.
        self.started: list[SimEvent] = []
        self._waiting: deque[SimStream] = deque()
        self._due: list[tuple[float, int, SimEvent]] = []
        self._count = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def stream(self) -> Stream:
        """A new stream."""
        return SimStream(self)

    def submit(self, stream: SimStream, kernel: Kernel, args: tuple[Any, ...]) -> SimEvent:
        """Takes a kernel into a stream."""
        variant = kernel.variants.get("sim")
        seconds = float(variant) if isinstance(variant, int | float) else self.latency
        event = SimEvent(self, stream, kernel, args, seconds)
        with self.changed:
            self.outstanding += 1
            stream.queue.append(event)
            if len(stream.queue) == 1:
                self._waiting.append(stream)
            self._start()
            if self._thread is None and not self.manual:
                self._thread = threading.Thread(target=self._pass_time, name="armillary-sim", daemon=True)
                self._thread.start()
            self.changed.notify_all()
        return event

    def complete(self, count: int = 1) -> None:
        """Ends the oldest running kernels (of a manual device)."""
        with self.changed:
            for event in self.running[:count]:
                self._end(event, None)

    def fail(self, error: BaseException) -> None:
        """Fails the oldest running kernel (of a manual device)."""
        with self.changed:
            self._end(self.running[0], error)

    def notify(self, event: Any, call: Callable[[], object]) -> bool:
        """Runs `call` when the event has happened."""
        with self.changed:
            if event._happened or event._error is not None:
                pending = False
            else:
                event._calls.append(call)
                pending = True
        if not pending:
            call()
        return True

    def close(self) -> None:
        """Ends the device's thread."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def _start(self) -> None:
        while self._waiting and len(self.running) < self.concurrency:
            event = self._waiting.popleft().queue[0]
            self.running.append(event)
            self.started.append(event)
            self.most_running = max(self.most_running, len(self.running))
            self._count += 1
            heapq.heappush(self._due, (time.monotonic() + event.seconds, self._count, event))

    def _end(self, event: SimEvent, error: BaseException | None) -> None:
        body = event.kernel.variants.get("sim")
        if error is None and callable(body):
            try:
                body(*event.args)
            except Exception as raised:
                error = raised
        self.running.remove(event)
        self.outstanding -= 1
        event.stream.queue.popleft()
        if event.stream.queue:
            self._waiting.append(event.stream)
        event.end(error)
        self._start()
        self.changed.notify_all()
        for call in event._calls:
            # A callback may enqueue, so it must not hold the device's lock.
            threading.Thread(target=call, daemon=True).start()

    def _pass_time(self) -> None:
        with self.changed:
            while not self._closed:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self.changed.wait(wait)
                    continue
                self._end(heapq.heappop(self._due)[2], None)
