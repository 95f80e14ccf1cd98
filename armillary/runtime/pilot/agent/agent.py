"""The agent: one thread and one epoll loop, through which tasks pass from the input queue to a backend and back.

Client threads only append to a queue, which the loop takes over in bulk. The loop owns everything else: tasks, places and backends. It
never polls: it hears of ends by pidfds, sockets and pipes, and a slot is free again at the end of a task, before its output is looked at.
Where RADICAL-Pilot has a process for each component, this has a function of the loop, because together they take some 30 µs per task.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from armillary.errors import one_line

from .scheduler import Instance, Scheduler
from .stamps import Stamps
from .task import CANCELED, DONE, FAILED, LAUNCHING, RUNNING, SCHEDULED, SCHEDULING, Live, Lost, NeverRan

#: Descriptions that the loop takes over at a time.
BULK = 1024


class Agent:
    """The loop, its tasks and its backends."""

    def __init__(self, scheduler: Scheduler, stamps: Stamps | None, retries: int) -> None:
        self.scheduler = scheduler
        self.stamps = stamps
        self.retries = retries
        self.instances: list[Instance] = []
        #: Seconds from the start of the loop until every instance was up or dead.
        self.bootstrap = float("nan")
        self.settled = threading.Event()
        #: How many tasks were taken in, and how many of them have not ended.
        self.unended = 0
        self._inbox: deque[Callable[[], None] | Live] = deque()
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asleep = False
        self._stopping = False
        #: Who wants to know when nothing is left to run.
        self._idle_callbacks: list[Callable[[], None]] = []
        self._began = time.monotonic()
        self.watch(self._wake, lambda _: self._woken())
        #: What went wrong inside the loop, which ends it.
        self.fault: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="pilot", daemon=True)

    # For any thread

    def post(self, item: Callable[[], None] | Live) -> None:
        """Hands a task, or something to be done, to the loop."""
        self._inbox.append(item)
        if self._asleep:
            self._asleep = False
            with contextlib.suppress(OSError):
                os.eventfd_write(self._wake, 1)

    def wait_until_empty(self, timeout: float | None = None) -> bool:
        """Waits until every task that was handed over has ended."""
        done = threading.Event()

        def look() -> None:
            if self.unended == 0:
                done.set()
            else:
                self._idle_callbacks.append(look)

        self.post(look)
        while not done.wait(0.2 if timeout is None else timeout):
            if timeout is not None or not self.thread.is_alive():
                return False
        return True

    def stop(self) -> None:
        """Ends backends and the loop."""
        self.post(self._stop)
        self.thread.join()

    # The loop

    def watch(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Calls `handler(events)` in the loop when something happens at `fd`."""
        if fd in self._handlers:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def unwatch(self, fd: int) -> None:
        """Forgets `fd`, before it is closed."""
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Calls `do` in the loop after so many seconds."""
        self._timer += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._timer, do))

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _run(self) -> None:
        try:
            for one in list(self.instances):
                self._start(one)
            while not self._stopping:
                self._pass()
        except BaseException as fault:  # Nobody may wait for ever for a loop that is gone.
            self.fault = fault
            self._abandon(fault)
            raise
        finally:
            for one in self.instances:
                with contextlib.suppress(Exception):
                    one.backend.stop()
            self._epoll.close()
            os.close(self._wake)
            self.settled.set()

    def _pass(self) -> None:
        self._asleep = True
        # What was appended before `_asleep` was set did not wake the loop, so the queue is looked at once more.
        timeout = 0.0 if self._inbox else -1.0
        if timeout and self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        events = self._epoll.poll(timeout)
        self._asleep = False
        for fd, what in events:
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(what)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        for _ in range(min(BULK, len(self._inbox))):
            item = self._inbox.popleft()
            if isinstance(item, Live):
                self._take_in(item)
            else:
                item()
        self._schedule()

    def _start(self, one: Instance) -> None:
        try:
            one.backend.start(self, one)
        except Exception as error:
            self.died(one, one_line(str(error) or type(error).__name__))

    def _stop(self) -> None:
        self._stopping = True

    # Instances

    def up(self, one: Instance) -> None:
        """An instance can take tasks now."""
        if not one.dead:
            one.up = True
        self._settle()

    def died(self, one: Instance, reason: str) -> None:
        """An instance is gone: what ran there fails or is repeated elsewhere, and its nodes leave."""
        if one.dead:
            return
        self.scheduler.leave(one)
        one.backend.died = reason
        for live in one.backend.lost():
            place, live.place = live.place, []
            # Another backend may share its nodes.
            self.scheduler.release(place)
            self.failed(live, Lost(f"the {one.backend.name} that ran it died: {reason}"), time.monotonic_ns(), again=True, place=place)
        self._settle()
        for shape in self.scheduler.shapes():
            if not self.scheduler.able(shape):
                for live in self.scheduler.drop(shape):
                    self.end(live, FAILED, error=NeverRan(f"the {one.backend.name} that could have run it died: {reason}"))

    def _settle(self) -> None:
        if not self.settled.is_set() and all(one.up or one.dead for one in self.instances):
            self.bootstrap = time.monotonic() - self._began
            self.settled.set()

    # Tasks

    def _take_in(self, live: Live) -> None:
        self.unended += 1
        live.waits = 1
        for before in live.task.after if live.task is not None else ():
            live.waits += 1
            before.add_done_callback(functools.partial(self._before_ended, live))
        self._one_less(live, None)

    def _before_ended(self, live: Live, ended: Any) -> None:
        self.post(lambda: self._one_less(live, ended))

    def _one_less(self, live: Live, ended: Any) -> None:
        if live.ended:
            return
        if ended is not None and (ended.cancelled() or ended.exception() is not None or getattr(ended, "task_failed", False)):
            self.end(live, CANCELED, error=NeverRan("a task that it waits for has failed"))
            return
        live.waits -= 1
        if live.waits:
            return
        live.stamps[SCHEDULING] = time.monotonic_ns()
        if live.future.cancelled():
            self.end(live, CANCELED)
        elif not self.scheduler.able(live.shape):
            self.end(live, FAILED, error=self.scheduler.refuse(live.shape))
        else:
            self.scheduler.add(live)

    def _schedule(self) -> None:
        while self.scheduler.waiting:
            live = self.scheduler.place()
            if live is None:
                break
            if self.admit(live):
                live.backend.backend.launch(live)
            else:
                self.scheduler.release(live.place)
        for one in self.instances:
            if one.up and not one.dead:
                one.backend.flush()

    def admit(self, live: Live) -> bool:
        """Stamps a task that has its place; false if its user has cancelled it meanwhile."""
        if live.attempt == 1 and not live.stamps[SCHEDULED] and not live.future.set_running_or_notify_cancel():
            self.end(live, CANCELED)
            return False
        live.stamps[SCHEDULED] = live.stamps[SCHEDULED] or time.monotonic_ns()
        return True

    def launching(self, live: Live) -> None:
        """The backend begins to start it."""
        live.stamps[LAUNCHING] = live.stamps[LAUNCHING] or time.monotonic_ns()

    def running(self, live: Live, at: int = 0) -> None:
        """It runs, since `at`."""
        live.stamps[RUNNING] = max(at or time.monotonic_ns(), live.stamps[LAUNCHING])

    def end(self, live: Live, state: int, value: Any = None, error: BaseException | None = None, at: int = 0, place: Any = ()) -> None:
        """It has ended: one row of the table, one result."""
        if live.ended:
            return
        live.ended = True
        self._stamp(live, state, at, place)
        self.unended -= 1
        future = live.future
        if not future.cancelled():
            if state == FAILED and error is None:
                future.task_failed = True  # type: ignore[attr-defined]
            if error is not None:
                future.set_exception(error)
            elif state == CANCELED:
                future.cancel()
                future.set_running_or_notify_cancel()
            else:
                future.set_result(value)
        if self.unended == 0:
            waiting, self._idle_callbacks = self._idle_callbacks, []
            for look in waiting:
                look()

    def _stamp(self, live: Live, state: int, at: int, place: Any) -> None:
        if self.stamps is not None:
            number = self.instances.index(live.backend) if live.backend is not None else -1
            last = max(live.stamps)
            self.stamps.add(live, state, number, max(at or time.monotonic_ns(), last), place)

    def done(self, live: Live, value: Any, at: int, place: Any) -> None:
        """It ended well."""
        self.end(live, DONE, value, at=at, place=place)

    def failed(self, live: Live, error: BaseException, at: int, *, again: bool = False, place: Any = (), value: Any = None) -> None:
        """It ended badly; with `again` another attempt is made if its user allows one and there is somebody to make it."""
        left = self.retries if live.retries < 0 else live.retries
        if again and live.attempt <= left and self.scheduler.able(live.shape):
            self._stamp(live, FAILED, at, place)
            now = time.monotonic_ns()
            live.attempt += 1
            live.stamps = [now, now, 0, 0, 0]
            live.worker, live.place, live.backend = None, [], None
            self.scheduler.add(live)
        else:
            self.end(live, FAILED, error=error, at=at, place=place)

    def _abandon(self, fault: BaseException) -> None:
        for one in self.instances:
            for live in one.backend.lost():
                self.end(live, FAILED, error=Lost(f"the pilot's loop failed: {fault!r}"))
        for shape in self.scheduler.shapes():
            for live in self.scheduler.drop(shape):
                self.end(live, FAILED, error=Lost(f"the pilot's loop failed: {fault!r}"))
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, Live):
                self.unended += 1
                self.end(item, FAILED, error=Lost(f"the pilot's loop failed: {fault!r}"))
