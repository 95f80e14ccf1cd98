"""A buffer of the halo vertices with the highest degrees, filled once and never changed.

A neighbour of many vertices is sampled often, whatever the seeds are. Lin et al., PaGraph: scaling GNN training on large graphs via
computation-aware caching, SoCC 2020, cache features by degree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique
from armillary.parameters import parameter

from .simulation.caches import first_content
from .simulation.replay import Fetch
from .workload import Positions, PrefetchWork


class StaticCache:
    """Keeps what it starts with."""

    latencies: Sequence[float] = ()
    decisions: Sequence[Mapping[str, Any]] = ()

    def __init__(self, content: npt.NDArray[np.int64], halo: int) -> None:
        self.first = content
        self._held = np.zeros(halo, bool)
        self._held[content] = True

    def minibatch(self, number: int, asked: Positions, now: float) -> Fetch:
        """What is not held is fetched."""
        missed = asked[~self._held[asked]]
        return Fetch(missed, len(asked) - len(missed))


@dataclass(frozen=True)
class StaticDegree(Technique):
    """Keeps the vertices with most neighbours (PaGraph, 2020)."""

    by: str = parameter("degree", "all neighbours count, or those in the trainer's own part", choices=("degree", "local"))

    def caches(self, work: PrefetchWork) -> list[StaticCache]:
        """One cache per trainer."""
        return [StaticCache(first_content(work, trainer, self.by), len(trainer.halo)) for trainer in work.trainers]
