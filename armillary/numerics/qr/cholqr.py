"""CholeskyQR: R is the Cholesky factor of the Gram matrix, and Q = A R⁻¹, so that all flops on rows are products.

One pass loses orthogonality with the square of the condition number, and breaks down near 1/√u.

Fukaya, Nakatsukasa, Yanagisawa, Yamamoto: CholeskyQR2, ScalA 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

from .factors.cholesky_passes import cholesky_passes
from .factors.method import Factors, Info, Method, Source
from .factors.triangles import conditioned
from .ranks.team import Team


@dataclass(frozen=True)
class CholQr(Method):
    """One pass of CholeskyQR."""

    name = "cholqr"

    def factor(self, team: Team, source: Source) -> Factors:
        x = source.copy()
        (r,) = cholesky_passes(team, x, team.gram(x), 1)
        return Factors(x, r, Info(self.name, condition=conditioned(r)))
