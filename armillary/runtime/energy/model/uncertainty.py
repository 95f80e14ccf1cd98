"""How sure a fitted power is: standard errors from the covariance, and intervals from resampled blocks of intervals.

Errors of neighbouring intervals depend on each other (a late reading takes from one what it gives to the next), so blocks of 20 consecutive
ones are drawn, not single ones.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from armillary.runtime.energy.traces.tasks import Real

from .fitted import Fitted
from .identifying import merged

BLOCK, DRAWS = 20, 400


def standard_errors(fitted: Fitted) -> dict[str, float]:
    """σ² (AᵀA)⁻¹ of the weighted system, for the powers that are not 0; a power of 0 has none (NaN)."""
    a, _, columns = _system(fitted)
    assert fitted.solution is not None
    active = np.flatnonzero(fitted.solution.power > 0)
    found = np.full(len(columns), np.nan)
    if active.size and len(a) > len(active):
        residual = fitted.solution.residual
        scale = np.sqrt((a[:, active] ** 2).sum(axis=0))
        gram = (a[:, active] / scale).T @ (a[:, active] / scale)
        variance = float((residual**2).sum()) / (len(a) - len(active))
        found[active] = np.sqrt(variance * np.diag(np.linalg.pinv(gram))) / scale
    return {name: float(found[i]) for i, one in enumerate(columns) for name in one}


def bootstrap(fitted: Fitted, *, draws: int = DRAWS, level: float = 0.95, seed: int = 0) -> dict[str, tuple[float, float]]:
    """The interval of each power over resampled blocks of consecutive intervals."""
    a, right, columns = _system(fitted)
    blocks = np.array_split(np.arange(len(a)), max(1, -(-len(a) // BLOCK)))
    scale = np.sqrt((a**2).sum(axis=0))
    scale[scale == 0] = 1.0
    system = np.column_stack((a / scale, right))
    grams = np.array([system[rows].T @ system[rows] for rows in blocks])
    rng = np.random.Generator(np.random.PCG64DXSM(seed))
    found = np.empty((draws, len(columns)))
    for i in range(draws):
        gram = grams[rng.integers(0, len(blocks), len(blocks))].sum(axis=0)
        # The square root of the normal equations; p is small and the columns are of unit norm.
        values, vectors = np.linalg.eigh(gram[:-1, :-1])
        root = vectors * np.sqrt(np.maximum(values, 1e-14 * values[-1]))
        found[i] = nnls(root.T, np.linalg.solve(root, gram[:-1, -1]))[0] / scale
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return {name: (float(low[i]), float(high[i])) for i, one in enumerate(columns) for name in one}


def _system(fitted: Fitted) -> tuple[Real, Real, list[tuple[str, ...]]]:
    assert fitted.solution is not None, "only a fit by least squares has these"
    assert fitted.observed is not None, "only a fit by least squares has these"
    seen, columns = fitted.observed, [one for one in fitted.groups if one]
    numbers = [[seen.columns.index(name) for name in one] for one in columns]
    weight = fitted.solution.weight
    energy = seen.energy - fitted.base_w * seen.lengths
    return merged(seen.seconds, numbers) * weight[:, None], energy * weight, columns
