"""A program in scales in which first-order methods converge fast, and the way back.

Ten Ruiz passes bring the largest entries of rows and columns to one, a Pock-Chambolle pass the sums of their magnitudes, both by square
roots of the scales; then costs and right-hand sides are brought to norms near one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.sparse import csr_array

from .problem import Array, LinearProgram

RUIZ_PASSES = 10
#: Most steps of Lanczos, how often its bound is looked at, and the relative bound that ends it.
NORM_STEPS, NORM_LOOK, NORM_TOLERANCE = 500, 5, 1e-4


@dataclass(frozen=True)
class Scaled:
    """The program with rows and columns scaled: original x = x · column, original y = y · row."""

    matrix: csr_array
    transposed: csr_array
    cost: Array
    row_lower: Array
    row_upper: Array
    lower: Array
    upper: Array
    #: Factors back to the original: one for each row and column.
    row: Array
    column: Array

    @property
    def xp(self) -> Any:
        """The namespace of its vectors."""
        return np

    def activity(self, x: Array) -> Array:
        """matrix · x."""
        return self.matrix @ x

    def gradient(self, y: Array) -> Array:
        """matrixᵀ · y."""
        return self.transposed @ y

    def row_total(self, value: float) -> float:
        """A sum over rows: all are here."""
        return value

    def original(self, x: Array, y: Array) -> tuple[Array, Array]:
        """The point in the program's own units."""
        return x * self.column, y * self.row

    def inside(self, x: Array, y: Array) -> tuple[Array, Array]:
        """A point of the program in these scales."""
        return x / self.column, y / self.row


def scaled(lp: LinearProgram, norms: bool = True) -> Scaled:
    """The program scaled by rows and columns, with `norms` also by the norms of costs and right-hand sides."""
    matrix = csr_array(lp.matrix, copy=True)
    m, n = matrix.shape
    rows, columns = np.ones(m), np.ones(n)
    for _ in range(RUIZ_PASSES):
        _apply(matrix, rows, columns, _largest(matrix, 1), _largest(matrix, 0))
    sizes = abs(matrix)
    _apply(matrix, rows, columns, np.asarray(sizes.sum(axis=1)).ravel(), np.asarray(sizes.sum(axis=0)).ravel())
    cost = lp.cost * columns
    low, high = lp.row_lower * rows, lp.row_upper * rows
    lower, upper = lp.lower / columns, lp.upper / columns
    right_norm = 1.0 + float(np.linalg.norm(sides(low, high))) if norms else 1.0
    cost_norm = 1.0 + float(np.linalg.norm(cost)) if norms else 1.0
    return Scaled(
        matrix,
        csr_array(matrix.T),
        cost / cost_norm,
        low / right_norm,
        high / right_norm,
        lower / right_norm,
        upper / right_norm,
        rows * cost_norm,
        columns * right_norm,
    )


def sides(low: Array, high: Array) -> Array:
    """The larger finite side of each row, 0 where it has none: what norms of right-hand sides are taken of."""
    low = np.where(np.isfinite(low), np.abs(low), 0.0)
    return np.maximum(low, np.where(np.isfinite(high), np.abs(high), 0.0))


def _largest(matrix: csr_array, axis: int) -> Array:
    if 0 in matrix.shape:
        return np.zeros(matrix.shape[1 - axis])
    return np.asarray(abs(matrix).max(axis=axis).todense()).ravel()


def _apply(matrix: csr_array, rows: Array, columns: Array, by_row: Array, by_column: Array) -> None:
    by_row = 1 / np.sqrt(np.where(by_row > 0, by_row, 1.0))
    by_column = 1 / np.sqrt(np.where(by_column > 0, by_column, 1.0))
    matrix.data *= np.repeat(by_row, np.diff(matrix.indptr)) * by_column[matrix.indices]
    rows *= by_row
    columns *= by_column


def norm2(problem: Any, rng: np.random.Generator) -> float:
    """The largest singular value of a program's matrix, to 1e-4 from below, by Lanczos on AᵀA. The same start at every place.

    Published solvers iterate powers, which takes hundreds of products where singular values lie close; the largest Ritz value gets there
    in dozens, and what rounding costs the others' orthogonality does not touch it.
    """
    n = problem.cost.shape[0]
    if n == 0:
        return 1.0
    q = problem.xp.asarray(rng.normal(size=n), device=getattr(problem.cost, "device", None))
    q = q / length(q)
    before, beside = problem.xp.zeros_like(q), 0.0
    diagonal: list[float] = []
    off: list[float] = []
    for step in range(1, min(n, NORM_STEPS) + 1):
        v = problem.gradient(problem.activity(q)) - beside * before
        diagonal.append(float(v @ q))
        v = v - diagonal[-1] * q
        beside = length(v)
        if step % NORM_LOOK == 0 or step == n or beside <= 1e-14 * diagonal[0]:
            values, vectors = eigh_tridiagonal(diagonal, off)
            left = beside * abs(float(vectors[-1, -1]))
            if left <= NORM_TOLERANCE * values[-1] or step == n:
                break
        off.append(beside)
        before, q = q, v / beside
    else:
        values = eigh_tridiagonal(diagonal, off[:-1], eigvals_only=True)
    return float(np.sqrt(values[-1])) if values[-1] > 0 else 1.0


def length(vector: Any) -> float:
    """The 2-norm of a vector of any kind."""
    return float(vector @ vector) ** 0.5
