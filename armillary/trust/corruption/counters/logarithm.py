"""A logarithm and a noise with the same bits on every processor: the C library's and NumPy's differ in the last place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from armillary.kernels import kernel
from armillary.kernels.exponential import exp

Array = np.ndarray[Any, Any]
_LN2 = 0.6931471805599453


@kernel
def _log1p(x: Array, out: Array) -> None:
    for i in range(len(x)):
        # 1 + x = m 2^e with m from 0.7 to 1.4, and log m = 2 artanh((m - 1) / (m + 1)).
        m, e = math.frexp(1.0 + x[i])
        if m < 0.7071067811865476:
            m, e = 2.0 * m, e - 1
        s = (m - 1.0) / (m + 1.0)
        q = s * s
        total = 0.0
        for n in range(21, 0, -2):
            total = total * q + 1.0 / n
        out[i] = 2.0 * s * total + e * _LN2


def log1p(x: Array) -> Array:
    """log(1 + x) for numbers from 0 on."""
    flat = np.ascontiguousarray(x, np.float64).ravel()
    out = np.empty_like(flat)
    _log1p(flat, out)
    return out.reshape(np.shape(x))


def signed_log(x: Array) -> Array:
    """The sign of x times log(1 + |x|): large numbers shrink, and their order stays."""
    found: Array = np.sign(x) * log1p(np.abs(x))
    return found


@kernel
def _exponentials(x: Array, out: Array) -> None:
    for i in range(len(x)):
        out[i] = exp(x[i])


def exponential(x: Array) -> Array:
    """The exponential of every number."""
    flat = np.ascontiguousarray(x, np.float64).ravel()
    out = np.empty_like(flat)
    _exponentials(flat, out)
    return out.reshape(np.shape(x))
