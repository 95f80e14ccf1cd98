"""Cuts work into contiguous pieces and gives them to threads; kernels release the interpreter lock, so pieces run in parallel.

The pieces depend on the data's shape alone and results come back in order, so the bytes never depend on the number of threads.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from armillary.errors import InputError

T = TypeVar("T")


def thread_count(threads: int | None) -> int:
    """Returns the number of threads: as many as asked for, or as many as there are cores that this process may use."""
    if threads is None:
        return max(1, len(os.sched_getaffinity(0)))
    if not 1 <= threads <= 1024:
        raise InputError(f"threads: found {threads}; expected 1 to 1024")
    return threads


def pieces(count: int, size: int) -> list[tuple[int, int]]:
    """Returns [start, stop) of consecutive pieces of `size`, of which the last one may be shorter."""
    return [(start, min(count, start + size)) for start in range(0, count, size)]


def shares(count: int, threads: int, least: int = 1) -> list[tuple[int, int]]:
    """Returns [start, stop) of one contiguous share per thread, none below `least`, for work whose result does not depend on the cut."""
    parts = max(1, min(threads, count // max(1, least)))
    edges = [count * part // parts for part in range(parts + 1)]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


def each(work: Callable[[int, int], T], parts: Sequence[tuple[int, int]], threads: int) -> list[T]:
    """Calls `work(start, stop)` for every part, `threads` at a time; results come in the order of the parts."""
    if threads == 1 or len(parts) < 2:
        return [work(start, stop) for start, stop in parts]
    return list(_pool(threads).map(lambda part: work(*part), parts))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="fields")
