"""How long something takes on this machine, for arenas that measure."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: median and quartiles over `calls` calls."""

    median: float
    lower_quartile: float
    upper_quartile: float
    calls: int


def timed(work: Callable[[], Any], min_seconds: float = 0.2, min_calls: int = 5) -> Timing:
    """Calls `work` until both minima are reached and says how long a call takes; garbage collection is off meanwhile."""
    seconds: list[float] = []
    collected = gc.isenabled()
    gc.disable()
    try:
        while len(seconds) < min_calls or sum(seconds) < min_seconds:
            start = time.perf_counter_ns()
            work()
            seconds.append((time.perf_counter_ns() - start) / 1e9)
    finally:
        if collected:
            gc.enable()
    seconds.sort()
    return Timing(_quantile(seconds, 0.5), _quantile(seconds, 0.25), _quantile(seconds, 0.75), len(seconds))


def _quantile(ordered: list[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])
