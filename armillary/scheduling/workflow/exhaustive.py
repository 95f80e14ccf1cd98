"""All candidates played in the judge, and the best one taken: what nobody knows beforehand.

It is an oracle, listed apart, and no claim compares with it.

The exhaustive search that QoSFlow, arXiv:2602.23598, 2026, sets out to avoid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .planning.ranker import Planning, Ranker, Ranking


@dataclass(frozen=True)
class Exhaustive(Ranker):
    """Orders configurations by the makespans that the judge will find."""

    oracle: ClassVar[bool] = True

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        if planning.measured is None:
            raise TypeError("an oracle needs the makespans that it knows beforehand")
        return Ranking(planning.measured, planning.measured)
