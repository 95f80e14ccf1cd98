"""CPU seconds of this thread for one call, which other work on the machine changes less than it changes the time on the wall."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

LONG_S = 0.3


def cpu_seconds(work: Callable[[], Any], *, least_calls: int = 3, least_s: float = 0.01) -> float:
    """The median over calls, of which there are at least `least_calls` and at least `least_s` seconds of."""
    took: list[float] = []
    with _uncollected():
        while len(took) < least_calls or sum(took) < least_s:
            took.append(once(work)[1])
    return max(statistics.median(took), 1e-9)


def in_turns(works: Mapping[str, Callable[[], Any]], *, rounds: int = 3, least_s: float = 0.003) -> dict[str, float]:
    """CPU seconds of each work, measured in rounds in which all have their turn, so that a change of the clock meets all of them.

    A work that takes longer than `LONG_S` has one turn.
    """
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            if not took[name] or took[name][0] < LONG_S:
                took[name].append(cpu_seconds(work, least_calls=1, least_s=least_s))
    return {name: statistics.median(found) for name, found in took.items()}


def once(work: Callable[[], Any]) -> tuple[Any, float]:
    """(what a call returns, its CPU seconds)."""
    began = time.thread_time_ns()
    found = work()
    return found, max((time.thread_time_ns() - began) / 1e9, 1e-9)


@contextmanager
def _uncollected() -> Iterator[None]:
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()
