"""Counters of what a rank sent. They are counted where the rank makes its calls, so every backend gives the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What one rank did in one phase.

    - `calls` counts the calls that move data or wait for other ranks.
    - `messages` counts messages to other ranks: those of point-to-point calls, and those of exchanges (all-to-all, neighbours), where
      every peer that gets at least one byte counts as one message.
    - `bytes` counts the payload for *other* ranks. An exchange counts everything but the rank's own block. `bcast` and `scatter` count at
      the root, `reduce` and `gather` count on the other ranks, and `allreduce`, `allgather` and `scan` count on every rank; each counts
      its payload once, whatever the algorithm sends.
    - `collectives` counts collective calls.
    - `seconds` is the time inside `with comm.phase(...)`; it is measured, or simulated on virtual ranks.
    """

    calls: int = 0
    messages: int = 0
    bytes: int = 0
    collectives: int = 0
    seconds: float = 0.0


class Tally:
    """The counters of one rank by phase, which all its communicators share. Calls outside any phase are counted under ""."""

    __slots__ = ("now", "phases")

    def __init__(self) -> None:
        self.now = Counters()
        self.phases: dict[str, Counters] = {"": self.now}

    @contextmanager
    def phase(self, name: str, clock: Callable[[], float] = time.perf_counter) -> Iterator[Counters]:
        """Count under `name` inside the `with` block. Calls inside a nested phase count for the nested phase only."""
        outer = self.now
        self.now = inner = self.phases.setdefault(name, Counters())
        start = clock()
        try:
            yield inner
        finally:
            inner.seconds += clock() - start
            self.now = outer
