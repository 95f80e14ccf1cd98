"""Grades the wanted entries and log det against columns of the inverse by sparse LU, refined in extended precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: The number of columns that are compared, where the matrix has as many.
COLUMNS = 24
_REFINEMENTS = 3


@dataclass(frozen=True)
class Reference:
    """Some columns of the inverse at the places of the matrix's entries, and log det."""

    matrix: Any
    columns: np.ndarray
    values: list[np.ndarray]
    logdet: float

    def error(self, inverse: Any) -> float:
        """Returns the largest error of a wanted entry over the largest wanted entry of its column, over the columns."""
        found, worst = inverse.tocsc(), 0.0
        for j, expected in zip(self.columns, self.values):
            rows = self.matrix.indices[self.matrix.indptr[j] : self.matrix.indptr[j + 1]]
            column = np.zeros(self.matrix.shape[0], found.dtype)
            held = slice(found.indptr[j], found.indptr[j + 1])
            column[found.indices[held]] = found.data[held]
            worst = max(worst, float(np.abs(column[rows] - expected).max() / np.abs(expected).max()))
        return worst

    def logdet_error(self, found: float) -> float:
        """Returns |log det − the reference| over the reference, or over 1 where that is smaller."""
        return abs(found - self.logdet) / max(1.0, abs(self.logdet))


def reference(matrix: Any, rng: np.random.Generator) -> Reference:
    """Computes columns by SuperLU in the order of the chain, which no technique uses, with residuals in extended precision."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    matrix = csc_array(matrix)
    n = matrix.shape[0]
    lu = splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    columns = np.sort(rng.choice(n, min(n, COLUMNS), replace=False))
    wide = matrix.astype(np.clongdouble if matrix.dtype.kind == "c" else np.longdouble).tocsr()
    unit = np.zeros((n, len(columns)), wide.dtype)
    unit[columns, np.arange(len(columns))] = 1
    x = lu.solve(unit.astype(matrix.dtype)).astype(wide.dtype)
    for _ in range(_REFINEMENTS):
        x = x + lu.solve((unit - wide @ x).astype(matrix.dtype))
    values = [x[matrix.indices[matrix.indptr[j] : matrix.indptr[j + 1]], k].astype(matrix.dtype) for k, j in enumerate(columns)]
    return Reference(matrix, columns, values, float(np.log(np.abs(lu.U.diagonal())).sum()))
