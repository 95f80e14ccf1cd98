"""ln(1 + x) and its inverse, and sines and cosines, element by element in a compiled loop.

NumPy's own versions use other vector instructions on other processors, and then differ in the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import kernel

Floats = npt.NDArray[np.float64]


def ln1p(values: npt.ArrayLike) -> Floats:
    """ln(1 + x)."""
    return _filled(_ln1p, values)


def expm1(values: npt.ArrayLike) -> Floats:
    """exp(x) - 1, the inverse of `ln1p`."""
    return _filled(_expm1, values)


def sine(values: npt.ArrayLike) -> Floats:
    """sin(x), x in radians; a cosine is a sine a quarter turn later."""
    return _filled(_sine, values)


def _filled(fill: Any, values: npt.ArrayLike) -> Floats:
    x = np.ascontiguousarray(values, np.float64)
    out = np.empty(x.shape)
    fill(x.ravel(), out.reshape(-1))
    return out


@kernel
def _ln1p(x, out):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        out[i] = math.log1p(x[i])


@kernel
def _expm1(x, out):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        out[i] = math.expm1(x[i])


@kernel
def _sine(x, out):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        out[i] = math.sin(x[i])
