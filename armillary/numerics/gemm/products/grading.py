"""Measures the error of a product in units of u·(|A||B|), and the grade that this earns.

The grades are those of the tests of Demmel and others for matrix products: A is what a float64 dot product gives for every entry, B only
relative to the norms of its row and column, C only relative to the norms of the matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..double_double import doubled
from .method import UNIT

#: Grades as numbers, so that they can be compared.
GRADES = {3: "A", 2: "B", 1: "C", 0: "F"}


@dataclass(frozen=True)
class Accuracy:
    """The largest error of an entry of a product over u·(|A||B|), and the grade (3 is A, 2 B, 1 C, 0 F)."""

    error_u: float
    grade: int


def accuracy(product: np.ndarray, a: np.ndarray, b: np.ndarray) -> Accuracy:
    """Returns the accuracy of `product` as a·b; NumPy arrays. Where a or b are not finite, entries must be as float64's own, error 0."""
    inner = a.shape[1]
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        with np.errstate(invalid="ignore"):
            same = np.array_equal(np.isfinite(product), np.isfinite(a @ b))
        return Accuracy(0.0, 3) if same else Accuracy(float("inf"), 0)
    high, low, scale = doubled(a, b)
    size, _, _ = doubled(np.abs(a), np.abs(b))
    if not np.isfinite(product).all():
        return Accuracy(float("inf"), 0)
    # Compared on the scale of rows and columns, where nothing overflows. Below float64's range each product may be
    # rounded to a multiple of 2^-1074, which is no error of the method.
    found = np.ldexp(product, -scale)
    error = np.abs((found - high) - low)
    error = np.maximum(0.0, error - inner * np.ldexp(0.5, np.clip(-1074 - scale, -1000, 1000)))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(error == 0, 0.0, error / (UNIT * size))
    worst = float(relative.max(initial=0.0))
    if worst <= 2 * inner:
        return Accuracy(worst, 3)
    rows, columns = _norms(a, 1), _norms(b, 0)
    limit = 2 * inner * UNIT
    if (error <= limit * rows[:, None] * columns[None, :]).all():
        return Accuracy(worst, 2)
    unscaled = np.ldexp(error, np.clip(scale, -2000, 2000))
    norm_wise = np.sqrt((unscaled**2).sum()) <= limit * np.linalg.norm(a) * np.linalg.norm(b)
    return Accuracy(worst, 1 if norm_wise else 0)


def _norms(x: np.ndarray, axis: int) -> np.ndarray:
    """Returns norms of rows or columns on the scale that `doubled` gives them."""
    from ..double_double import _top

    top = _top(x, axis)
    scaled = np.ldexp(x, -(top[:, None] if axis == 1 else top[None, :]))
    return np.sqrt((scaled * scaled).sum(axis=axis))
