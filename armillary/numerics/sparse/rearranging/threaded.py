"""Gives contiguous parts of the work to one thread each; the kernels release the GIL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..distribution.dcsc import Array

#: Fewer entries than this are not worth a thread.
_LEAST = 4096


def check_threads(threads: int) -> int:
    """Returns the number of threads; refuses less than one."""
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise InputError(f"threads: found {threads!r}; expected 1 to 1024")
    return threads


def each(work: Callable[[int], Any], count: int, threads: int) -> list[Any]:
    """Returns the results of work(0) … work(count − 1), in order, computed on `count` threads."""
    if threads == 1 or count <= 1:
        return [work(t) for t in range(count)]
    with ThreadPoolExecutor(min(threads, count)) as pool:
        return list(pool.map(work, range(count)))


def balanced(pointers: Array, parts: int) -> Array:
    """Returns borders of `parts` contiguous ranges of the compressed columns with about equally many entries each."""
    goals = np.linspace(0, pointers[-1], parts + 1)
    borders = np.searchsorted(pointers, goals)
    borders[0], borders[-1] = 0, pointers.size - 1
    return np.maximum.accumulate(np.minimum(borders, pointers.size - 1))


def worthwhile(threads: int, entries: int) -> int:
    """Returns as many threads as the entries are worth."""
    return max(1, min(threads, entries // _LEAST))


def private_offsets(histograms: Array) -> Array:
    """Returns where part t writes what goes to destination d: the exclusive sum of histograms[t, d] in the order (d, t)."""
    flat = np.cumsum(histograms.T.ravel())
    exclusive = np.concatenate(([0], flat[:-1]))
    return np.ascontiguousarray(exclusive.reshape(histograms.shape[::-1]).T)
