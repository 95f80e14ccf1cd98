"""Products with twice float64's precision, which errors are measured against.

Every product and sum is kept with its exact error (Dekker, Knuth), so that an entry is off by about inner · 2^−104 of Σ|a||b|. Rows and
columns are scaled by powers of two first, so that nothing overflows on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from armillary import arrays
from armillary.arena import NotForThisCase
from armillary.kernels import parallel_loop

from .digits.exponents import exponents
from .native import Native
from .products.method import NOT_FINITE, Info, Method, empty_product, finite


@dataclass(frozen=True)
class DoubleDouble(Method):
    """A product in twice the precision, rounded once. Dekker: A floating-point technique for extending the available precision. 1971."""

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        if arrays.kind_of(a, b) != "numpy":
            raise NotForThisCase("takes NumPy arrays")
        empty = empty_product(a, b)
        if empty is not None:
            return empty, Info("double-double", bound=0.0)
        if not finite(a, b):
            product, info = Native().multiply(a, b)
            return product, Info("double-double", fallback=NOT_FINITE, bound=info.bound)
        high, low, scale = doubled(a, b)
        return np.ldexp(high + low, scale), Info("double-double", bound=0.5 + a.shape[1] * 2.0**-48)


def doubled(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns high, low, exponent with a·b = (high + low) · 2^exponent up to about inner · 2^−104 · |a||b|; finite NumPy matrices."""
    rows, columns = _top(a, 1), _top(b, 0)
    left, right = np.ldexp(a, -rows[:, None]), np.ldexp(b, -columns[None, :])
    high, low = _dots(np.ascontiguousarray(left), np.ascontiguousarray(right.T))
    return high, low, rows[:, None] + columns[None, :]


def _top(x: np.ndarray, axis: int) -> np.ndarray:
    top = exponents(x).max(axis=axis)
    return np.where(top < -2000, 0, top)


@parallel_loop(nogil=False)
def _dots(a, b):
    """Returns rows of `a` by rows of `b`, as unevaluated sums of two."""
    high = np.empty((a.shape[0], b.shape[0]))
    low = np.empty((a.shape[0], b.shape[0]))
    for i in numba.prange(a.shape[0]):
        for j in range(b.shape[0]):
            total, rest = 0.0, 0.0
            for k in range(a.shape[1]):
                x, y = a[i, k], b[j, k]
                product = x * y
                # Veltkamp's splitting: each factor in two halves whose products are exact.
                t = 134217729.0 * x
                xh = t - (t - x)
                xl = x - xh
                t = 134217729.0 * y
                yh = t - (t - y)
                yl = y - yh
                error = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
                new = total + product
                part = new - total
                rest += ((total - (new - part)) + (product - part)) + error
                total = new
            high[i, j] = total + rest
            low[i, j] = rest - (high[i, j] - total)
    return high, low
