"""CholeskyQR2: a second pass of CholeskyQR brings Q to roundoff where the first one succeeded.

Fukaya, Nakatsukasa, Yanagisawa, Yamamoto: CholeskyQR2, ScalA 2014.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary import arrays

from .factors.cholesky_passes import cholesky_passes
from .factors.method import Factors, Info, Method, Source, cuda_passes, finished
from .factors.triangles import conditioned
from .ranks.rows import INVERSE_BELOW
from .ranks.team import Team


@dataclass(frozen=True)
class CholQr2(Method):
    """Two passes of CholeskyQR."""

    name = "cholqr2"

    def on_device(self, a: arrays.Array) -> Factors | None:
        passes = cuda_passes(a, pivoted=False)
        if passes is None:
            return None
        (first,) = passes.triangles()
        if not first.usable(INVERSE_BELOW):
            return None
        return finished(passes, first.matrix, Info(self.name, condition=conditioned(first.matrix)))

    def factor(self, team: Team, source: Source) -> Factors:
        x = source.copy()
        first, second = cholesky_passes(team, x, team.gram(x), 2)
        return Factors(x, second @ first, Info(self.name, condition=conditioned(first)))
