"""The least recently used vertex leaves: a cache that is filled by what is fetched anyway, so that a replacement costs nothing.

All vertices of a minibatch are used at the same time, so among equally old ones that of the lowest degree leaves. It starts with the
vertices of the highest degree, as the others do. LRU as in Belady, A study of replacement algorithms for a virtual-storage computer, IBM
Systems Journal 1966.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique
from armillary.parameters import parameter

from .simulation.caches import STARTS, first_content
from .simulation.replay import Fetch
from .workload import Positions, PrefetchWork, Trainer


class LruCache:
    """Keeps the vertices that were used last."""

    latencies: Sequence[float] = ()
    decisions: Sequence[Mapping[str, Any]] = ()

    def __init__(self, trainer: Trainer, capacity: int, content: npt.NDArray[np.int64]) -> None:
        halo = len(trainer.halo)
        self.first, self._capacity, self._halo = content, capacity, halo
        #: 0 for the lowest degree; a vertex's key is its last use first and this second.
        self._rank = np.empty(halo, np.int64)
        self._rank[np.argsort(trainer.degree, kind="stable")] = np.arange(halo)
        self._key = np.full(halo, -1, np.int64)
        self._key[content] = self._rank[content]
        self._held = np.sort(content)

    def minibatch(self, number: int, asked: Positions, now: float) -> Fetch:
        """Misses enter, and the oldest leave."""
        missed = asked[self._key[asked] < 0]
        self._key[asked] = (number + 1) * self._halo + self._rank[asked]
        held = np.concatenate([self._held, missed])
        over = len(held) - self._capacity
        if over > 0:
            # Keys are all different.
            oldest = np.partition(self._key[held], over - 1)[over - 1]
            leaves = self._key[held] <= oldest
            self._key[held[leaves]] = -1
            held = held[~leaves]
        self._held = held
        return Fetch(missed, len(asked) - len(missed), min(len(missed), max(over, 0)))


@dataclass(frozen=True)
class Lru(Technique):
    """Keeps the most recently used vertices (LRU, as in IBM Systems Journal 1966)."""

    start: str = parameter("degree", "what a buffer starts with", choices=STARTS)

    def caches(self, work: PrefetchWork) -> list[LruCache]:
        """One cache per trainer."""
        return [LruCache(t, work.capacity(t), first_content(work, t, self.start, self.rng)) for t in work.trainers]
