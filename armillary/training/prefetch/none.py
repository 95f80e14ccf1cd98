"""No prefetching: every remote vertex of every minibatch is fetched, as in plain DistDGL.

Zheng et al., DistDGL: distributed graph neural network training for billion-scale graphs, IA3 2020. As for all techniques, the fetch of a
minibatch overlaps with the computation of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import Technique

from .simulation.replay import Fetch
from .workload import Positions, PrefetchWork


class NoCache:
    """Keeps nothing."""

    first = np.zeros(0, np.int64)
    latencies: Sequence[float] = ()
    decisions: Sequence[Mapping[str, Any]] = ()

    def minibatch(self, number: int, asked: Positions, now: float) -> Fetch:
        """Everything is fetched."""
        return Fetch(asked, 0)


@dataclass(frozen=True)
class NoPrefetch(Technique):
    """Fetches every remote vertex (DistDGL, 2020)."""

    def caches(self, work: PrefetchWork) -> list[NoCache]:
        """One cache per trainer."""
        return [NoCache() for _ in work.trainers]
