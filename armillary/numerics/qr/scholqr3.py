"""Shifted CholeskyQR3: a shift of the Gram matrix makes the first pass succeed up to a condition number of about 1/u.

The price is a third pass.

Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa: Shifted Cholesky QR for computing the QR factorization of ill-conditioned matrices,
SIAM J. Sci. Comput. 42, 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from armillary.parameters import parameter

from .factors.cholesky_passes import cholesky_passes
from .factors.method import Factors, Info, Method, Source
from .factors.triangles import Array, conditioned, unit
from .ranks.team import Team


@dataclass(frozen=True)
class ScholQr3(Method):
    """Shifted CholeskyQR with s = 11 (m n + n (n + 1)) u ‖A‖², then two passes."""

    name = "scholqr3"

    norm: Literal["frobenius", "power"] = parameter(
        "frobenius", "the norm in the shift, which is Frobenius's (free with the Gram matrix) or ‖A‖₂ by power iteration on it"
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
    """Returns the largest eigenvalue of a Gram matrix by power iteration, which approaches it from below, so 5 % are added."""
    v = np.ones(gram.shape[0], gram.dtype)
    size = 0.0
    for _ in range(30):
        w = gram @ v
        size = float(np.linalg.norm(w))
        if size == 0.0:
            return 0.0
        v = w / size
    return 1.05 * size
