"""How long something takes on this machine, for arenas that measure; devices are waited for on both sides of the clock."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any


class Stopwatch:
    """Seconds between entering and leaving a `with` block.

    `with Stopwatch(x) as watch: work(x)`, then `watch.seconds`. The devices that hold the arrays given are idle when it starts and idle
    when it stops, because a launch returns at once; on the host that costs nothing.
    """

    def __init__(self, *arrays: Any) -> None:
        self._arrays = arrays
        #: Set when the block is left.
        self.seconds = 0.0

    def __enter__(self) -> Stopwatch:
        _wait(self._arrays)
        self._start = time.perf_counter_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _wait(self._arrays)
        self.seconds = (time.perf_counter_ns() - self._start) / 1e9


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median and quartiles over `calls` calls."""

    median: float
    lower_quartile: float
    upper_quartile: float
    calls: int


def timed(work: Callable[[], Any], *arrays: Any, min_seconds: float = 0.2, min_calls: int = 5) -> Timing:
    """Calls `work` until both minima are reached and says how long one call takes.

    Garbage collection is off meanwhile, and the devices of `arrays` are waited for around each call.
    """
    seconds: list[float] = []
    collected = gc.isenabled()
    gc.disable()
    try:
        while len(seconds) < min_calls or sum(seconds) < min_seconds:
            with Stopwatch(*arrays) as watch:
                work()
            seconds.append(watch.seconds)
    finally:
        if collected:
            gc.enable()
    lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    return Timing(median, lower, upper, len(seconds))


def _wait(arrays: tuple[Any, ...]) -> None:
    if arrays:
        from armillary.arrays.clock import synchronise

        synchronise(*arrays)
