"""Replaces stale entries by hot missing vertices every Δ minibatches, whatever that brings: MassiveGNN's rule.

Sarkar et al., MassiveGNN: efficient training via prefetching for massively connected distributed graphs, IEEE CLUSTER 2024. The scores are
those of `buffers.scored`, which Rudder shares.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.parameters import parameter

from .control.fixed import Every
from .simulation.caches import STARTS, TimedCache, first_content, scored
from .workload import PrefetchWork


@dataclass(frozen=True)
class Periodic(Technique):
    """Replaces every so many minibatches (MassiveGNN, 2024)."""

    period: int = parameter(25, "minibatches between replacements, and misses after which an entry is stale (Δ)", range=(1, 100_000))
    alpha: float = parameter(0.05, "share by which a score falls per minibatch", range=(1e-6, 0.999))
    start: str = parameter("degree", "what a buffer starts with", choices=STARTS)

    def caches(self, work: PrefetchWork) -> list[TimedCache]:
        """One cache per trainer."""
        due = Every(self.period).due
        made = []
        for trainer in work.trainers:
            content = first_content(work, trainer, self.start, self.rng)
            made.append(TimedCache(scored(work, trainer, content, alpha=self.alpha, period=self.period), due))
        return made
