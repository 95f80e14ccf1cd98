"""Sums over vectors, with the same bits on every processor.

A BLAS splits a dot product by the width of the processor's registers and over threads, so its last bits depend on the machine, and on
vectors of some ten thousand numbers its threads wait for each other longer than the sum takes. The loops here add in one fixed order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from armillary.kernels import kernel


def dot(a: Any, b: Any) -> float:
    """Returns the inner product of two vectors of one kind of array."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return float(_dot(a, b))
    return float(a @ b)


def length(vector: Any) -> float:
    """Returns the 2-norm of a vector of any kind of array."""
    return math.sqrt(dot(vector, vector))


@kernel
def _dot(a, b):
    # Four sums, because each addition waits for the one before it.
    s0 = s1 = s2 = s3 = 0.0
    n = a.shape[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        s0 += a[i] * b[i]
        s1 += a[i + 1] * b[i + 1]
        s2 += a[i + 2] * b[i + 2]
        s3 += a[i + 3] * b[i + 3]
    for i in range(whole, n):
        s0 += a[i] * b[i]
    return (s0 + s1) + (s2 + s3)


def top_of_tridiagonal(diagonal: list[float], beside: list[float]) -> tuple[float, float]:
    """Returns the largest eigenvalue of a symmetric tridiagonal matrix, and the last entry of its unit eigenvector."""
    count = len(diagonal)
    value, last = _top(np.array(diagonal, np.float64), np.array(beside, np.float64), np.empty(count), np.empty(count))
    return float(value), float(last)


@kernel
def _top(a, b, down, up):
    # Bisection: μ is above all eigenvalues where every pivot of μ − T is positive.
    k = a.shape[0]
    low, high = a[0], a[0]
    for i in range(k):
        reach = a[i] + (abs(b[i - 1]) if i else 0.0) + (abs(b[i]) if i < k - 1 else 0.0)
        low, high = max(low, a[i]), max(high, reach)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle <= low or middle >= high:
            break
        pivot, above = middle - a[0], True
        for i in range(1, k):
            if pivot <= 0.0:
                above = False
                break
            pivot = middle - a[i] - b[i - 1] * b[i - 1] / pivot
        if above and pivot > 0.0:
            high = middle
        else:
            low = middle
    # The eigenvector from its largest entry outwards, which no rounding grows: pivots from both ends meet there.
    for i in range(k):
        down[i] = high - a[i] - (b[i - 1] * b[i - 1] / down[i - 1] if i else 0.0)
        down[i] = down[i] if down[i] != 0.0 else 1e-300
    for i in range(k - 1, -1, -1):
        up[i] = high - a[i] - (b[i] * b[i] / up[i + 1] if i < k - 1 else 0.0)
        up[i] = up[i] if up[i] != 0.0 else 1e-300
    peak, least = 0, np.inf
    for i in range(k):
        left = abs(down[i] + up[i] - (high - a[i]))
        if left < least:
            peak, least = i, left
    size, entry = 1.0, 1.0
    for i in range(peak - 1, -1, -1):
        entry *= b[i] / down[i]
        size += entry * entry
    entry = 1.0
    for i in range(peak + 1, k):
        entry *= b[i - 1] / up[i]
        size += entry * entry
    return high, abs(entry) / math.sqrt(size)
