"""A cache that keeps nothing: the technique that another package adds to storage/eviction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique
from armillary.storage.eviction import CacheOutcome, Evictions, Trace


@dataclass(frozen=True)
class KeepNothing(Technique):
    """Misses every request. Nobody, Nowhere 2024."""

    def simulate(self, trace: Trace, capacity: int, *, log: bool = True) -> CacheOutcome:
        """No hits, no moves, no evictions."""
        none = Evictions(*(np.zeros(0, kind) for kind in (np.int32, np.int64, np.int64, np.bool_, np.uint8)))
        misses = np.zeros(len(trace), np.bool_)
        return CacheOutcome(hits=misses, lookups=len(trace), hit_count=0, moves=0, evictions=none if log else None, capacity=capacity)

    def metadata_bytes_per_object(self, capacity: int = 1000) -> float:
        """It holds no object."""
        return 0.0
