"""A program in scales in which first-order methods converge fast, and the way back.

Ten Ruiz passes bring the largest entries of rows and columns to one, a Pock-Chambolle pass the sums of their magnitudes, both by square
roots of the scales; then costs and right-hand sides are brought to norms near one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..program.problem import Array, LinearProgram
from .sums import dot, length, top_of_tridiagonal

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
        """Returns matrix · x."""
        return self.matrix @ x

    def gradient(self, y: Array) -> Array:
        """Returns matrixᵀ · y."""
        return self.transposed @ y

    def row_total(self, value: float) -> float:
        """Returns a sum over rows, which are all here."""
        return value

    def original(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Returns the point in the program's own units."""
        return x * self.column, y * self.row

    def inside(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Returns a point of the program in these scales."""
        return x / self.column, y / self.row


def scaled(lp: LinearProgram, norms: bool = True) -> Scaled:
    """Returns the program scaled by rows and columns, with `norms` also by the norms of costs and right-hand sides."""
    m, n = lp.shape
    # Narrow indices halve what the steps read beside the numbers themselves.
    narrow = np.int32 if max(lp.matrix.nnz, m, n) < 2**31 else np.int64
    parts = lp.matrix.data.copy(), lp.matrix.indices.astype(narrow), lp.matrix.indptr.astype(narrow)
    matrix = csr_array(parts, shape=(m, n))
    factors = np.ones(m), np.ones(n)
    places: tuple[Array, Array] = np.repeat(np.arange(m), np.diff(matrix.indptr)), matrix.indices
    for turn in range(RUIZ_PASSES + 1):
        of = _largest if turn < RUIZ_PASSES else _summed
        by = [1 / np.sqrt(of(index, np.abs(matrix.data), len(factor))) for index, factor in zip(places, factors)]
        matrix.data *= by[0][places[0]] * by[1][places[1]]
        for factor, now in zip(factors, by):
            factor *= now
    rows, columns = factors
    cost = lp.cost * columns
    low, high = lp.row_lower * rows, lp.row_upper * rows
    lower, upper = lp.lower / columns, lp.upper / columns
    right_norm = 1.0 + length(sides(low, high)) if norms else 1.0
    cost_norm = 1.0 + length(cost) if norms else 1.0
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
    """Returns the larger finite side of each row, 0 where it has none, for the norms of right-hand sides."""
    low = np.where(np.isfinite(low), np.abs(low), 0.0)
    return np.maximum(low, np.where(np.isfinite(high), np.abs(high), 0.0))


def _largest(index: Array, sizes: Array, count: int) -> Array:
    """Returns the largest of the sizes at each index, 1 where there is none."""
    found = np.zeros(count)
    np.maximum.at(found, index, sizes)
    return np.where(found > 0, found, 1.0)


def _summed(index: Array, sizes: Array, count: int) -> Array:
    """Returns the sum of the sizes at each index, 1 where there is none."""
    found = np.bincount(index, sizes, minlength=count)
    return np.where(found > 0, found, 1.0)


def norm2(problem: Any, rng: np.random.Generator) -> float:
    """Returns the largest singular value of a program's matrix, to 1e-4 from below, by Lanczos on AᵀA. The same start at every place.

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
        diagonal.append(dot(v, q))
        v = v - diagonal[-1] * q
        beside = length(v)
        if step % NORM_LOOK == 0 or step == n or beside <= 1e-14 * diagonal[0]:
            top, last = top_of_tridiagonal(diagonal, off)
            if beside * last <= NORM_TOLERANCE * top or step == n:
                break
        off.append(beside)
        before, q = q, v / beside
    else:
        top, _ = top_of_tridiagonal(diagonal, off[:-1])
    return math.sqrt(top) if top > 0 else 1.0
