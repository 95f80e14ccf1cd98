"""A bare event loop: what happens at which time, in the order (time, insertion), and nothing else.

`Simulation` knows processes, events, priorities, cancellation and deadlocks, and costs about twice as much per event. A simulator of
plain callbacks that makes hundreds of thousands of calls takes this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Agenda:
    """Simulated time in seconds, and the calls that will happen: `at` adds one, `run` makes them happen.

    A call that is due at the same time as another happens after it if it was added after it. Time never goes back: a call that is
    added for a time that has passed happens now.
    """

    __slots__ = ("_calls", "_order", "now")

    def __init__(self, start: float = 0.0) -> None:
        #: The time of the call that happens now, or that happened last.
        self.now = start
        self._calls: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._order = 0

    def at(self, time: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Lets `call(*arguments)` happen at `time`."""
        self._order += 1
        heappush(self._calls, (time if time > self.now else self.now, self._order, call, arguments))

    def after(self, delay: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Lets `call(*arguments)` happen `delay` seconds from now."""
        self.at(self.now + delay, call, *arguments)

    @property
    def next_time(self) -> float:
        """When the next call happens; infinity when there is none."""
        return self._calls[0][0] if self._calls else math.inf

    def step(self) -> None:
        """Makes the next call happen."""
        self.now, _, call, arguments = heappop(self._calls)
        call(*arguments)

    def run(self, until: float = math.inf) -> None:
        """Makes every call happen that is due before `until` or at it."""
        calls = self._calls
        while calls and calls[0][0] <= until:
            self.now, _, call, arguments = heappop(calls)
            call(*arguments)

    def __len__(self) -> int:
        return len(self._calls)
