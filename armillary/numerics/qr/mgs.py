"""Modified Gram–Schmidt: every column is normalised and removed from those after it, with two sums over all ranks per column.

Loses orthogonality in proportion to the condition; its products are of vectors. Björck: Solving linear least squares problems by
Gram–Schmidt orthogonalization, BIT 7, 1967.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary import arrays

from .factors.method import Breakdown, Factors, Info, Method, Source
from .ranks import rows
from .ranks.team import Team


@dataclass(frozen=True)
class Mgs(Method):
    """Column by column, with 2n − 1 allreduces."""

    name = "mgs"

    def factor(self, team: Team, source: Source) -> Factors:
        x, n = source.copy(), source.columns()
        xp, dtype = arrays.namespace(x), np.dtype(rows.host_type(x))
        r = np.zeros((n, n), dtype)
        for j in range(n):
            column = xp.asarray(x[:, j : j + 1], copy=True)
            squares = float(arrays.to_host(xp.asarray(xp.sum(abs(column) ** 2))).real)
            team.on_rows(column, 2, 1)
            size = float(np.sqrt(team.total(np.array([squares], dtype.type(0).real.dtype))[0]))
            if not size > 0.0 or not np.isfinite(size):
                raise Breakdown("nothing of it is left, or it is out of range", j)
            column /= size
            x[:, j : j + 1] = column
            r[j, j] = size
            if j + 1 == n:
                break
            rest = x[:, j + 1 :]
            team.on_rows(rest, 4 * (n - j - 1), 3)
            r[j, j + 1 :] = team.total(rows.inner(column, rest))[0]
            factor, start = rows.like(r[j : j + 1, j + 1 :], x), 0
            for piece in rows.pieces(rest):
                piece -= column[start : start + piece.shape[0]] * factor
                start += piece.shape[0]
        return Factors(x, r, Info(self.name))
