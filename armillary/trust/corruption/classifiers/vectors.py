"""Support vectors with a kernel whose sums have a fixed order; scikit-learn solves for the vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.kernels import kernel
from armillary.kernels.exponential import exp
from armillary.learn.products import product

Array = np.ndarray[Any, Any]
#: Vectors at most: the kernel is their number squared.
MOST = 1500


@kernel
def _rbf(a: Array, b: Array, gamma: float, out: Array) -> None:
    for i in range(len(a)):
        for j in range(len(b)):
            total = 0.0
            for c in range(a.shape[1]):
                gap = a[i, c] - b[j, c]
                total += gap * gap
            out[i, j] = exp(-gamma * total)


def rbf(a: Array, b: Array, gamma: float) -> Array:
    """exp(-gamma |a - b|^2) of all pairs of rows."""
    out = np.empty((len(a), len(b)))
    _rbf(np.ascontiguousarray(a), np.ascontiguousarray(b), gamma, out)
    return out


class Machine:
    """A fitted machine: rows to its decision function."""

    def __init__(self, fitted: Any, x: Array, gamma: float) -> None:
        self.vectors, self.gamma = np.ascontiguousarray(x[fitted.support_]), gamma
        self.weights, self.start = np.ascontiguousarray(fitted.dual_coef_[0]), float(fitted.intercept_[0])

    def __call__(self, x: Array) -> Array:
        """[rows]."""
        found: Array = product(rbf(x, self.vectors, self.gamma), self.weights) + self.start
        return found


def some(rows: int, rng: np.random.Generator) -> Array:
    """All rows, or 1,500 of them."""
    return np.arange(rows) if rows <= MOST else np.sort(rng.choice(rows, MOST, replace=False))
