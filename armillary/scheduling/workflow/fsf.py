"""Fastest storage first: the more stages are on the fastest tier the better, then the more are on the next one.

A rule of thumb that looks at no cost at all. Configurations with equal tiers are ordered by nodes, more first.

One of the heuristics with which QoSFlow is compared, arXiv:2602.23598, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .planning.configurations import Configurations, Layout
from .planning.ranker import Planning, Ranker, Ranking, ranks
from .stages.workflow import Ints


@dataclass(frozen=True)
class Fsf(Ranker):
    """Prefers configurations with more stages on the fastest tier."""

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        counts = on_tiers(planning.options, planning.layout)
        return Ranking(ranks(*(-count for count in counts), -planning.options.nodes))


def on_tiers(configurations: Configurations, layout: Layout) -> list[Ints]:
    """The number of stages on each local tier, the fastest tier first. Tiers stand in the order of their speed, the shared one apart."""
    local = [t for t in range(len(layout.tiers)) if t != layout.shared]
    return [np.asarray((configurations.tier == t).sum(1), np.int64) for t in reversed(local)]
