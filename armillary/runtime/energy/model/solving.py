"""min ‖D(E − A P)‖² with P ≥ 0: relative weights, unit columns, a Householder reduction to p rows, and one pass of Huber's weights.

The reduction is a loop in a fixed order, so it has the same bits on every machine; what is left for SciPy is a system of p by p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from armillary.kernels import kernel, part
from armillary.runtime.energy.traces.tasks import Real

#: Huber's constant times the scale of the residuals, and the residuals that are listed.
HUBER, LISTED = 1.345, 6.0
#: A median absolute deviation times this estimates the standard deviation of normal errors.
NORMAL = 1.4826


@dataclass(frozen=True)
class Solution:
    """P, and what is known of the fit. `residual` is relative: weight × (E − A P)."""

    power: Real
    residual: Real
    #: The weight of each interval, Huber's included.
    weight: Real
    #: The largest over the smallest singular value of the scaled system.
    condition: float
    outliers: tuple[int, ...]


def relative_weights(energy: Real) -> Real:
    """1/max(E_k, a tenth of the median): the error that is minimised is the relative one, as it is the measure."""
    return 1.0 / np.maximum(energy, max(float(np.median(energy)) / 10.0, 1e-300))


def solve(
    a: Real, energy: Real, *, weights: bool = True, nonnegative: bool = True, huber: bool = True, ridge: float = 0.0
) -> Solution:
    """The powers of A's columns that explain the energies. `ridge` adds a penalty on the scaled powers instead of P ≥ 0."""
    weight = relative_weights(energy) if weights else np.full(len(energy), 1.0 / max(float(np.mean(energy)), 1e-300))
    power, condition = _once(a, energy, weight, nonnegative, ridge)
    residual = weight * (energy - times(a, power))
    scale = NORMAL * float(np.median(np.abs(residual)))
    used = weight
    if huber and scale > 1e-12:
        factor = np.sqrt(np.minimum(1.0, HUBER * scale / np.maximum(np.abs(residual), 1e-300)))
        used = weight * factor
        power, condition = _once(a, energy, used, nonnegative, ridge)
        residual = weight * (energy - times(a, power))
        scale = NORMAL * float(np.median(np.abs(residual)))
    outliers = np.flatnonzero(np.abs(residual) > LISTED * scale) if scale > 1e-12 else np.empty(0, np.int64)
    return Solution(power, residual, used, condition, tuple(outliers.tolist()))


def _once(a: Real, energy: Real, weight: Real, nonnegative: bool, ridge: float) -> tuple[Real, float]:
    r, right, scale = reduced(a, energy, weight)
    singular = np.linalg.svd(r, compute_uv=False)
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else math.inf
    if ridge:
        p = len(scale)
        r = np.vstack((r, math.sqrt(ridge) * np.eye(p)))
        right = np.append(right, np.zeros(p))
        found = np.linalg.lstsq(r, right, rcond=None)[0]
    else:
        found = nnls(r, right)[0] if nonnegative else np.linalg.lstsq(r, right, rcond=1e-13)[0]
    return found / scale, condition


def reduced(a: Real, energy: Real, weight: Real) -> tuple[Real, Real, Real]:
    """(R, Qᵀ b, column norms) of the weighted system with columns of unit norm: it has the same solutions in p rows instead of K."""
    rows, p = a.shape
    system = np.zeros((p + 1, max(rows, p + 1)))
    system[:p, :rows] = (a * weight[:, None]).T
    system[p, :rows] = energy * weight
    scale = np.empty(p)
    _unit(system, scale)
    _triangle(system)
    return np.triu(system[:p, :p].T), system[p, :p].copy(), scale


@kernel
def _unit(system, scale):  # type: ignore[no-untyped-def]
    columns, rows = system.shape
    for j in range(columns - 1):
        total = 0.0
        for k in range(rows):
            total += system[j, k] * system[j, k]
        norm = math.sqrt(total)
        scale[j] = norm if norm > 0.0 else 1.0
        for k in range(rows):
            system[j, k] /= scale[j]


@kernel
def _triangle(system):  # type: ignore[no-untyped-def]
    """Householder reflections that leave R in the first columns and Qᵀ b in the last one; a column of the system is a row here.

    Four partial sums hide the latency of additions; their order is fixed.
    """
    columns, rows = system.shape
    for j in range(columns - 1):
        total = _dot(system, j, j, j)
        norm = math.sqrt(total)
        if norm == 0.0:
            continue
        first = system[j, j]
        head = first + (norm if first >= 0.0 else -norm)
        square = total - first * first + head * head
        system[j, j] = head
        for c in range(j + 1, columns):
            dot = _dot(system, j, c, j) * (2.0 / square)
            for k in range(j, rows):
                system[c, k] -= dot * system[j, k]
        system[j, j] = -norm if first >= 0.0 else norm


@part
def _dot(system, a, b, begin):  # type: ignore[no-untyped-def]
    rows = system.shape[1]
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    k = begin
    while k + 4 <= rows:
        s0 += system[a, k] * system[b, k]
        s1 += system[a, k + 1] * system[b, k + 1]
        s2 += system[a, k + 2] * system[b, k + 2]
        s3 += system[a, k + 3] * system[b, k + 3]
        k += 4
    while k < rows:
        s0 += system[a, k] * system[b, k]
        k += 1
    return (s0 + s1) + (s2 + s3)


def times(a: Real, power: Real) -> Real:
    """A P, each row summed in the order of the columns."""
    found = np.zeros(len(a))
    _times(np.ascontiguousarray(a), np.ascontiguousarray(power), found)
    return found


@kernel
def _times(a, power, found):  # type: ignore[no-untyped-def]
    for k in range(a.shape[0]):
        total = 0.0
        for j in range(a.shape[1]):
            total += a[k, j] * power[j]
        found[k] = total
