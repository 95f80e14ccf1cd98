"""Passes of CholeskyQR: the triangle is the Cholesky factor of the Gram matrix, so that all flops on rows are products."""

from __future__ import annotations

from armillary import arrays

from ..ranks.team import Team
from .triangles import Array, upper_cholesky


def cholesky_passes(team: Team, x: arrays.Array, gram: Array, passes: int) -> list[Array]:
    """Applies x ← x R⁻¹ `passes` times, with R the Cholesky factor of the Gram matrix, and returns these R.

    There is one allreduce between two passes.
    """
    factors = []
    for number in range(passes):
        r = upper_cholesky(gram)
        team.work(x.shape[1] ** 3 / 3)
        factors.append(r)
        if number + 1 == passes:
            team.divide(x, r)
        else:
            gram = team.divide_and_gram(x, r)
    return factors
