"""What a rank sent, counted where it calls: the same numbers on every backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What one rank did in one phase.

    `calls`: calls that move data or wait for other ranks. `messages`: messages to other ranks, of point-to-point calls and of exchanges
    (all-to-all, neighbours: one for each peer that gets at least one byte). `bytes`: payload for *other* ranks: of an exchange, all but
    one's own block; of `bcast` and `scatter` at the root, of `reduce` and `gather` elsewhere, and of `allreduce`, `allgather` and `scan`:
    the payload once, whatever the algorithm sends. `collectives`: collective calls. `seconds`: time inside `with comm.phase(...)`,
    measured, or simulated on virtual ranks.
    """

    calls: int = 0
    messages: int = 0
    bytes: int = 0
    collectives: int = 0
    seconds: float = 0.0


class Tally:
    """The counters of one rank, by phase, shared by all its communicators; what happens outside any phase counts under ""."""

    __slots__ = ("now", "phases")

    def __init__(self) -> None:
        self.now = Counters()
        self.phases: dict[str, Counters] = {"": self.now}

    @contextmanager
    def phase(self, name: str, clock: Callable[[], float] = time.perf_counter) -> Iterator[Counters]:
        """Count under `name` inside; a phase inside a phase counts for itself alone."""
        outer = self.now
        self.now = inner = self.phases.setdefault(name, Counters())
        start = clock()
        try:
            yield inner
        finally:
            inner.seconds += clock() - start
            self.now = outer
