"""CholeskyQR2: a second pass of CholeskyQR brings Q to roundoff where the first one succeeded.

Fukaya, Nakatsukasa, Yanagisawa, Yamamoto: CholeskyQR2, ScalA 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

from .factors.cholesky_passes import cholesky_passes
from .factors.method import Factors, Info, Method, Source
from .factors.triangles import conditioned
from .ranks.team import Team


@dataclass(frozen=True)
class CholQr2(Method):
    """Two passes of CholeskyQR."""

    name = "cholqr2"

    def factor(self, team: Team, source: Source) -> Factors:
        x = source.copy()
        first, second = cholesky_passes(team, x, team.gram(x), 2)
        return Factors(x, second @ first, Info(self.name, condition=conditioned(first)))
