"""CholeskyQR and what was made of it: the triangle is the Cholesky factor of the Gram matrix, all flops are products.

One pass loses orthogonality with the square of the condition and breaks down near 1/√u; a second pass brings it to roundoff where the first
succeeded; a shift makes the first succeed up to about 1/u, at the price of a third.

Fukaya, Nakatsukasa, Yanagisawa, Yamamoto: CholeskyQR2, ScalA 2014; Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa: Shifted Cholesky QR
for computing the QR factorization of ill-conditioned matrices, SIAM J. Sci. Comput. 42, 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from armillary import arrays

from .method import Factors, Info, Method, Source
from .team import Team
from .triangles import Array, conditioned, unit, upper_cholesky


def cholesky_passes(team: Team, x: arrays.Array, gram: Array, passes: int) -> list[Array]:
    """x ← x R⁻¹ with R the Cholesky factor of its Gram matrix, `passes` times, and these R; an allreduce between two passes."""
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


@dataclass(frozen=True)
class CholQr(Method):
    """One pass of CholeskyQR."""

    name = "cholqr"

    def factor(self, team: Team, source: Source) -> Factors:
        x = source.copy()
        (r,) = cholesky_passes(team, x, team.gram(x), 1)
        return Factors(x, r, Info(self.name, condition=conditioned(r)))


@dataclass(frozen=True)
class CholQr2(Method):
    """Two passes of CholeskyQR."""

    name = "cholqr2"

    def factor(self, team: Team, source: Source) -> Factors:
        x = source.copy()
        first, second = cholesky_passes(team, x, team.gram(x), 2)
        return Factors(x, second @ first, Info(self.name, condition=conditioned(first)))


@dataclass(frozen=True)
class ScholQr3(Method):
    """Shifted CholeskyQR, then two passes: s = 11 (m n + n (n + 1)) u ‖A‖²."""

    name = "scholqr3"

    norm: Literal["frobenius", "power"] = field(
        default="frobenius",
        metadata={"doc": "the norm in the shift: Frobenius, free with the Gram matrix, or ‖A‖₂ by power iteration on it"},
    )

    def factor(self, team: Team, source: Source) -> Factors:
        x = source.copy()
        m, n = team.rows, source.columns()
        gram = team.gram(x)
        square = float(np.trace(gram).real) if self.norm == "frobenius" else _largest(gram)
        shift = 11 * (m * n + n * (n + 1)) * unit(gram.dtype) * square
        if not math.isfinite(shift):
            shift = 0.0
        gram += np.asarray(shift, gram.dtype) * np.eye(n, dtype=gram.dtype)
        zeroth, first, second = cholesky_passes(team, x, gram, 3)
        return Factors(x, second @ (first @ zeroth), Info(self.name, condition=conditioned(zeroth)))


def _largest(gram: Array) -> float:
    """The largest eigenvalue of a Gram matrix by power iteration, from below; 5 % are added."""
    v = np.ones(gram.shape[0], gram.dtype)
    size = 0.0
    for _ in range(30):
        w = gram @ v
        size = float(np.linalg.norm(w))
        if size == 0.0:
            return 0.0
        v = w / size
    return 1.05 * size
