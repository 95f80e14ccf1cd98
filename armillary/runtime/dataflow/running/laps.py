"""Laps of an application under one way of running it, with what the machine shows meanwhile."""

from __future__ import annotations

import os
import resource
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from armillary.runtime.dataflow.applications.application import Application

#: A result that is further off than this many units of rounding is wrong.
MOST_ERROR = 1.0
SAMPLE_S = 1e-3
#: Seconds after which no further lap begins, and the laps that there are at least.
MOST_S, LEAST_LAPS = 1.5, 2


@dataclass(frozen=True)
class Laps:
    """Seconds of each lap, and medians of what was seen beside them."""

    seconds: tuple[float, ...]
    #: Seconds that host threads spent in waits for devices, per second of the lap.
    blocked: float
    #: Involuntary context switches of a lap.
    switches: float
    #: The most threads of the process during the lap that is not timed.
    threads: int
    #: The graph and the run of the last lap, if it was one.
    last: Any = None

    @property
    def makespan(self) -> float:
        """The median lap."""
        return statistics.median(self.seconds)

    @property
    def p90(self) -> float:
        """The 90th percentile, between the laps beside it."""
        ordered = sorted(self.seconds)
        at = 0.9 * (len(ordered) - 1)
        low = int(at)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (at - low) * (ordered[high] - ordered[low])

    @property
    def spread(self) -> float:
        """The interquartile range over the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.makespan


def laps(app: Application, lap: Callable[[], tuple[float, Any]], count: int) -> Laps:
    """One lap that warms up, is checked and has its threads counted, then `count` timed ones, of which the last is checked.

    Where libraries fight for cores a lap may take a thousand times as long as another, so no lap but the second begins after `MOST_S`.
    """
    if count < 1:
        raise ValueError(f"found {count} laps; expected at least one")
    threads = _threads_of(app, lap)
    seconds: list[float] = []
    waited: list[float] = []
    switched: list[int] = []
    last: Any = None
    for number in range(count):
        if number >= LEAST_LAPS and sum(seconds) > MOST_S:
            break
        app.reset()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        began = time.perf_counter()
        blocked, last = lap()
        seconds.append(time.perf_counter() - began)
        switched.append(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before)
        waited.append(blocked / seconds[-1])
    check(app)
    return Laps(tuple(seconds), statistics.median(waited), statistics.median(switched), threads, last)


def check(app: Application) -> None:
    """Raises an error if the result is wrong."""
    error = app.error()
    if not error <= MOST_ERROR:
        raise ArithmeticError(f"{app.name}: the result is {error:.3g} times as far off as rounding explains")


def _threads_of(app: Application, lap: Callable[[], Any]) -> int:
    over = threading.Event()
    most = [0]

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            most[0] = max(most[0], len(os.listdir("/proc/self/task")) - 1)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    app.reset()
    try:
        lap()
    finally:
        over.set()
        watcher.join()
    check(app)
    return max(most[0], len(os.listdir("/proc/self/task")))
