"""Low-transition layout: the fewer copies into and out of local tiers the better.

The strongest rule of thumb of the paper. More nodes come first whatever the tiers, which orders better than the reverse.

One of the heuristics with which QoSFlow is compared, arXiv:2602.23598, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

from .planning.makespan import movements
from .planning.ranker import Planning, Ranker, Ranking, ranks


@dataclass(frozen=True)
class Ltl(Ranker):
    """Prefers configurations with few stage-in and stage-out actions."""

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        return Ranking(ranks(-planning.options.nodes, movements(planning.options, planning.layout)))
