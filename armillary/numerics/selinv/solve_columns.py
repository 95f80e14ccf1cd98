"""A sparse LU factorisation and a solve with every unit vector, of which the wanted entries are kept, as a user of SciPy would do.

Li: An overview of SuperLU: algorithms, implementation, and user interface. ACM TOMS, 2005.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase
from armillary.parameters import parameter

from .inversion.method import Answer, Entries, Method, Problem

#: Multiplications from which on a matrix is declined, which are over ten minutes of one core.
MOST_WORK = 2e11


@dataclass(frozen=True)
class SolveColumns(Method):
    """SciPy's `splu` and N solves in batches."""

    batch: int = parameter(64, "the number of unit vectors that are solved at a time", range=(1, 4096))

    def invert(self, problem: Problem) -> Answer:
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        matrix = problem.sparse.tocsc()
        order = matrix.shape[0]
        lu = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        entries = lu.L.nnz + lu.U.nnz
        if float(entries) * order > MOST_WORK:
            raise NotForThisCase(f"{order} solves with {entries} entries are over ten minutes")
        logdet = float(np.log(np.abs(lu.U.diagonal())).sum())
        data = np.empty(matrix.nnz, matrix.dtype)
        for start in range(0, order, self.batch):
            stop = min(order, start + self.batch)
            unit = np.zeros((order, stop - start), matrix.dtype)
            unit[np.arange(start, stop), np.arange(stop - start)] = 1
            x = lu.solve(unit)
            for j in range(start, stop):
                held = slice(matrix.indptr[j], matrix.indptr[j + 1])
                data[held] = x[matrix.indices[held], j - start]
        inverse = csc_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
        return Answer(Entries(inverse), logdet, native_bytes=_bytes(entries, matrix.dtype))


def _bytes(entries: int, dtype: np.dtype) -> int:
    """Returns bytes of a factor in SuperLU: a number and an index of 4 bytes per entry."""
    return entries * (dtype.itemsize + 4)
