"""A linear operator for SciPy's solvers that checks each product by the sums of the matrix's columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from armillary.errors import InputError

Array = np.ndarray[Any, Any]
ROUNDING = 8.0


class Corrupted(ArithmeticError):
    """A product does not have the sum that the matrix's columns promise."""


class AbftOperator(LinearOperator):
    """A as SciPy's solvers take it. The sums are taken when it is made; each product is checked against them.

    Raises `Corrupted` if |w x - 1'y| exceeds 8 eps nnz times the sum of |a_ij| |x_j|. A fault in x itself is not seen.
    """

    def __init__(self, matrix: Any) -> None:
        found = csr_array(matrix)
        if found.dtype.kind != "f":
            raise InputError(f"found a matrix of {found.dtype}; expected real floating-point numbers")
        super().__init__(found.dtype, found.shape)  # type: ignore[call-arg]
        self.matrix = found
        self._sums = np.asarray(found.sum(0), np.float64).ravel()
        self._sizes = np.asarray(abs(found).sum(0), np.float64).ravel()
        self._unit = ROUNDING * float(np.finfo(found.dtype).eps) * max(1, found.nnz)
        #: Products that were checked.
        self.checked = 0

    def _matvec(self, x: Array) -> Array:
        flat = np.asarray(x).ravel()
        y: Array = self.matrix @ flat
        with np.errstate(all="ignore"):
            whole = float(self._sums @ flat)
            gap = abs(whole - float(y.sum(dtype=np.float64)))
            # |w x| is at most the sum of |a| |x|, and is known already; most products pass by it.
            allowed = self._unit * abs(whole)
            if not gap <= allowed:
                allowed = self._unit * float(self._sizes @ np.abs(flat))
        self.checked += 1
        if not gap <= allowed:
            raise Corrupted(f"product {self.checked} is off by {gap:.3g} in its sum, where {allowed:.3g} is rounding")
        return y
