"""What a run of a technique on a problem gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.timing import timed

#: Calls of which the median counts.
CALLS = 7


@dataclass(frozen=True)
class Measured:
    """A gradient, how long it and the kernel alone take when warm, and what else is known."""

    gradients: Mapping[str, np.ndarray[Any, Any]]
    gradient_s: float
    forward_s: float
    #: Seconds before the first result: analysis, compilation or loading.
    compile_s: float
    #: Bytes of tapes, snapshots and buffers, or of a compiler's temporaries.
    extra_bytes: float
    #: Statements that had to be changed or added to the kernel.
    changes: int = 0
    #: What a plan promised: bytes, and seconds for what is carried.
    promised_bytes: float | None = None
    promised_s: float | None = None
    #: What is stored and computed again, in words.
    report: str = ""


def median_s(work: Callable[[], Any]) -> float:
    """Seconds of one call, the median of seven."""
    return timed(work, min_seconds=0.0, min_calls=CALLS).median
