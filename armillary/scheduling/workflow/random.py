"""A random order, to see what luck gives: half of all pairs are right.

The plainest baseline of any ranking; ties and luck are discussed with Kendall's rank correlation (Biometrika 1938).
"""

from __future__ import annotations

from dataclasses import dataclass

from .planning.ranker import Planning, Ranker, Ranking


@dataclass(frozen=True)
class Random(Ranker):
    """Orders configurations at random."""

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        return Ranking(self.rng.permutation(len(planning.candidates)).astype(float))
