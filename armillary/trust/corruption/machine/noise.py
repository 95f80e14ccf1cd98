"""What a measurement adds to counts: a scatter of half a percent, more for clocks, and now and then the operating system."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..counters.logarithm import exponential
from .processor import COUNTERS

Array = np.ndarray[Any, Any]
SCATTER, CLOCK_SCATTER = 0.005, 0.015
#: One window in so many has an event of the operating system, which adds instructions and misses.
EVENT_EVERY, EVENT_INSTRUCTIONS, EVENT_MISSES = 50, (0.02, 0.10), 0.20
_CLOCKS = [COUNTERS.index(name) for name in ("cycles", "task_clock")]
_MISSES = [COUNTERS.index(name) for name in ("l1_misses", "l2_misses", "llc_misses", "dtlb_misses")]


def measured(windows: Array, rng: np.random.Generator) -> Array:
    """Counts [windows, counters] as a measurement would give them."""
    scatter = np.full(len(COUNTERS), SCATTER)
    scatter[_CLOCKS] = CLOCK_SCATTER
    found = windows * exponential(scatter * rng.standard_normal(windows.shape))
    event = rng.random(len(windows)) * EVENT_EVERY < 1
    more = rng.uniform(*EVENT_INSTRUCTIONS, len(windows))
    found[event, 0] *= 1 + more[event]
    for column in _MISSES:
        found[event, column] *= 1 + EVENT_MISSES
    return found
