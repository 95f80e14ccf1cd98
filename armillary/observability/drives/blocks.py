"""Work on many rows in blocks of fixed size, on as many threads as there are cores, whose number does not change the result."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_blocks(score: Callable[[Array], Array], rows: Array, size: int) -> Array:
    """The scores of rows, block by block; `score` takes the rows of a block and must let other threads run to gain from them."""
    out = np.empty(len(rows))
    parts = [slice(at, at + size) for at in range(0, len(rows), size)]

    def one(part: slice) -> None:
        out[part] = score(rows[part])

    workers = min(cores(), len(parts))
    if workers < 2:
        for part in parts:
            one(part)
        return out
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, parts))
    return out
