"""Whether a lock keeps its promise on real cores: many acquires, each of which looks whether somebody else is inside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel
from armillary.kernels.atomics import load, store

from .bench import COUNT, MOST_THREADS, STOP, Measured, cores, pin, ready, timed_threads
from .places import LINE_WORDS, aligned
from .waiting import POLICIES

_NONE, _ONE = np.uint64(0), np.uint64(1)
#: The word of a lock's data that says who is inside.
INSIDE = 2


@dataclass(frozen=True)
class Stressed:
    """What a stress run found: `entries` is a count that the sections keep without protection, `overlaps` are meetings inside."""

    acquires: int
    entries: int
    overlaps: int
    seconds: float

    def __bool__(self) -> bool:
        return self.entries == self.acquires and not self.overlaps


def stress(lock: Any, threads: int, acquires: int, *, wait: str = "spin", pairs: tuple[Any, Any] | None = None) -> Stressed:
    """Lets each of so many threads in so many times, one lock for all; a lost update or a meeting inside shows.

    `pairs` are compiled parts to use instead of the lock's own.
    """
    if wait not in POLICIES or not 1 <= threads <= MOST_THREADS or acquires < 1:
        raise InputError(f'found wait="{wait}", {threads} threads and {acquires} acquires; expected spin, yield or park, and at least one')
    if threads > len(cores()) and wait == "spin":
        raise InputError(f'found {threads} threads on {len(cores())} cores; expected at most one for each core, or wait="yield" or "park"')
    at = lock.places(1, threads, wait)
    words = aligned(at.size)
    lock.prepare(words, at)
    work = _worker(*(pairs or lock.compiled(wait)))
    control, data, counts = aligned(3 * LINE_WORDS), aligned(LINE_WORDS), aligned(threads * LINE_WORDS)
    here = cores()

    def body(number: int) -> None:
        pin(here[number % len(here)])
        work(words, at, control, data, number, acquires, counts)

    found: Measured = timed_threads(body, control, threads, 0.0, acquires, counts, data)
    return Stressed(found.acquires, int(data[COUNT]), int(counts[1::LINE_WORDS].sum()), found.seconds)


@functools.cache
def _worker(acquire: Any, release: Any) -> Callable[..., None]:
    @kernel
    def work(words, at, control, data, me, acquires, counts):  # type: ignore[no-untyped-def]
        mine = np.uint64(me) + _ONE
        overlaps = 0
        done = 0
        ready(control)
        while done < acquires and load(control, STOP) == _NONE:
            token = acquire(words, at, me, 0)
            overlaps += load(data, INSIDE) != _NONE
            store(data, INSIDE, mine)
            data[COUNT] += _ONE
            overlaps += load(data, INSIDE) != mine
            store(data, INSIDE, _NONE)
            release(words, at, me, 0, token)
            done += 1
        counts[me * LINE_WORDS + 1] = np.uint64(overlaps)
        store(counts, me * LINE_WORDS, np.uint64(done))

    return work
