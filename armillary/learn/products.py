"""Matrix products whose bits do not depend on the processor.

A BLAS adds up in an order that suits the processor, so the last bits of a trained network's outputs differ between machines, and with them
the decisions of a simulator that asks it. These loops add in the order of the rows of the second factor; vector instructions run over its
columns. They reach half of OpenBLAS's speed on one thread for factors as narrow as those of small networks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from armillary.kernels import kernel, part

Array = np.ndarray[Any, Any]


def product(a: Array, b: Array) -> Array:
    """a @ b for a [..., n, k] and b [k, m], or b [..., k, m] with the same leading sizes; a vector b [k] gives [..., n]."""
    if b.ndim == 1:
        return product(a, b[:, None])[..., 0]
    if a.ndim < 1 or a.shape[-1] != b.shape[-2] or (b.ndim > 2 and a.shape[:-2] != b.shape[:-2]):
        raise ValueError(f"found factors of shapes {a.shape} and {b.shape}; expected as many columns as rows, and the same leading sizes")
    kind = np.result_type(a, b)
    left, right = np.ascontiguousarray(a, kind), np.ascontiguousarray(b, kind)
    k, m = right.shape[-2:]
    out = np.empty((*left.shape[:-1], m), kind)
    sets = math.prod(right.shape[:-2])
    rows = math.prod(left.shape[:-1]) // max(1, sets)
    _multiply(left.reshape(sets, rows, k), right.reshape(sets, k, m), out.reshape(sets, rows, m))
    return out


@part
def _row(x, w, out):  # type: ignore[no-untyped-def]
    """out = x W, four rows of W at a time, each sum in the order of the rows."""
    k, m = w.shape
    for j in range(m):
        out[j] = 0
    whole = k - k % 4
    for i in range(0, whole, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        w0, w1, w2, w3 = w[i], w[i + 1], w[i + 2], w[i + 3]
        for j in range(m):
            out[j] = (((out[j] + x0 * w0[j]) + x1 * w1[j]) + x2 * w2[j]) + x3 * w3[j]
    for i in range(whole, k):
        x0, w0 = x[i], w[i]
        for j in range(m):
            out[j] += x0 * w0[j]


@kernel
def _multiply(a, b, out):  # type: ignore[no-untyped-def]
    """The products of [sets, n, k] and [sets, k, m]."""
    for s in range(a.shape[0]):
        for i in range(a.shape[1]):
            _row(a[s, i], b[s], out[s, i])
