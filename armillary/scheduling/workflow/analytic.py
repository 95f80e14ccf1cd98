"""The analytic makespan itself as the ranking, without a tree.

It knows what QoSFlow's tree is fitted on, row by row, so it is the strongest rival and shows what the tree costs. It explains nothing,
because every configuration stands alone.

The model is QoSFlow's, arXiv:2602.23598, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

from .planning.ranker import Planning, Ranker, Ranking


@dataclass(frozen=True)
class AnalyticModel(Ranker):
    """Orders configurations by their analytic makespan."""

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        total = planning.total[planning.candidates]
        return Ranking(total, total)
