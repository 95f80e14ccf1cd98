"""The whole inverse from a dense Cholesky factor, which takes N³ operations and N² numbers, most of them unwanted.

Cholesky, in: Benoît: Note sur une méthode de résolution des équations normales, 1924; LAPACK's potrf and potri.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from armillary.arena import NotForThisCase

from .inversion.method import Answer, Method, Problem

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Rows from which on a matrix is declined, because it would take minutes and gigabytes.
MOST_ROWS = 8000


@dataclass(frozen=True)
class Dense(Method):
    """The whole inverse by LAPACK's potrf and potri."""

    def invert(self, problem: Problem) -> Answer:
        order = problem.blocks.order
        if order > MOST_ROWS:
            raise NotForThisCase(f"{order} rows; takes up to {MOST_ROWS}")
        whole = problem.sparse.toarray(order="F")
        lapack = import_module("scipy.linalg.lapack")
        potrf, potri = lapack.get_lapack_funcs(("potrf", "potri"), (whole,))
        factor, bad = potrf(whole, lower=1, overwrite_a=1)
        if bad:
            raise NotForThisCase(f"not positive definite at pivot {bad - 1}")
        logdet = 2 * float(np.log(np.diagonal(factor).real).sum())
        inverse, _ = potri(factor, lower=1, overwrite_c=1)
        return Answer(_Lower(inverse, problem), logdet)


@dataclass(frozen=True)
class _Lower:
    """A lower triangle, of which the entries at the places of the matrix are taken."""

    lower: np.ndarray
    problem: Problem

    def to_sparse(self) -> csr_array:
        from scipy.sparse import coo_array

        rows, columns = self.problem.sparse.tocoo().coords
        below = rows >= columns
        values = self.lower[np.maximum(rows, columns), np.minimum(rows, columns)]
        return coo_array((np.where(below, values, values.conj()), (rows, columns)), shape=self.lower.shape).tocsr()
