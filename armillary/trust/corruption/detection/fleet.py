"""A mercurial core among many: the same kernel runs on all of them, and each core's counters are compared with the others'.

Nothing is learned. By window and counter, a core's logarithm is set against the median of the other cores, in units of their spread; a
core whose median over its windows stands out in some counter computes something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..counters.logarithm import log1p
from .features import LEAST_SPREAD

Array = np.ndarray[Any, Any]
LEAST_CORES = 4


@dataclass(frozen=True, eq=False)
class Fleet:
    """By core, the largest deviation over the counters, the counter that has it, and whether it stands out."""

    deviation: Array
    counter: Array
    odd: Array


def compare_cores(counters: Array, limit: float = 8.0) -> Fleet:
    """counters: [cores, windows, counters] of the same work, at least four cores. limit: robust deviations beyond which a core is odd."""
    x = np.asarray(counters, np.float64)
    if x.ndim != 3 or len(x) < LEAST_CORES or min(x.shape) < 1:
        raise InputError(f"found an array of shape {x.shape}; expected [cores, windows, counters] with at least {LEAST_CORES} cores")
    if not (np.isfinite(x).all() and x.min() >= 0):
        raise InputError("found a counter that is negative, infinite or no number; expected counts")
    # The median of a core's windows has the scatter of one window divided by their root, and events of the system leave it alone.
    middle = np.median(log1p(x), 1)
    found = np.zeros(middle.shape)
    for core in range(len(middle)):
        others = np.delete(middle, core, 0)
        centre = np.median(others, 0)
        spread = 1.4826 * np.median(np.abs(others - centre), 0)
        found[core] = np.abs(middle[core] - centre) / np.maximum(spread, LEAST_SPREAD / np.sqrt(x.shape[1]))
    worst = found.argmax(1)
    deviation = found[np.arange(len(found)), worst]
    return Fleet(deviation, worst, deviation > limit)
