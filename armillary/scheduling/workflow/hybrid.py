"""Fast storage and few transitions in one score: normalised 2·tmpfs + ssd, plus one less the normalised number of copies.

Both terms run from 0 to 1 over the configurations, so neither outweighs the other by its unit. With other tiers than two local ones, a
tier's weight is its place in the order of speed. Configurations with equal scores are ordered by nodes, more first.

One of the heuristics with which QoSFlow is compared, arXiv:2602.23598, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .fsf import on_tiers
from .planning.makespan import movements
from .planning.ranker import Planning, Ranker, Ranking, ranks
from .stages.workflow import Floats


@dataclass(frozen=True)
class Hybrid(Ranker):
    """Prefers configurations with fast tiers and few copies."""

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        counts = on_tiers(planning.options, planning.layout)
        speed = sum((len(counts) - n) * count.astype(float) for n, count in enumerate(counts))
        moves = movements(planning.options, planning.layout).astype(float)
        score = np.round(_unit(np.asarray(speed)) + 1 - _unit(moves), 12)
        return Ranking(ranks(-score, -planning.options.nodes))


def _unit(values: Floats) -> Floats:
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.zeros(len(values))
