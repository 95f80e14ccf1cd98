"""Latency histograms with Knative's bounds, and the quantile that Prometheus reads from them.

Inside a bucket, `histogram_quantile` takes latencies as evenly spread: a constant latency of 2,077 ms reads as 4,850 ms at the 95th
percentile, because it lies in the bucket from 2,000 to 5,000 ms.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop

#: Upper bounds of Knative's buckets in ms; the last bucket has none.
KNATIVE_BOUNDS_MS = np.array(
    [5, 10, 20, 40, 60, 80, *range(100, 501, 50), 600, 700, 800, 900, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000], np.float64
)  # fmt: skip


@loop
def bucket_quantile(q, bounds, counts):  # type: ignore[no-untyped-def]
    """The q-quantile by Prometheus' rule, or NaN where nothing was counted; counts has one entry more than bounds."""
    total = 0.0
    for k in range(len(counts)):
        total += counts[k]
    if total <= 0:
        return math.nan
    rank = q * total
    before = 0.0
    for k in range(len(bounds)):
        if before + counts[k] >= rank and counts[k] > 0:
            low = bounds[k - 1] if k > 0 else 0.0
            return low + (bounds[k] - low) * (rank - before) / counts[k]
        before += counts[k]
    return bounds[-1]


def histogram_quantile(q: float, bounds: npt.ArrayLike, counts: npt.ArrayLike) -> float:
    """The q-quantile of a histogram as Prometheus computes it; NaN where it is empty.

    bounds: finite upper bounds, increasing. counts: requests per bucket (not cumulative), with the bucket above the last bound at the end.
    """
    upper, held = np.asarray(bounds, np.float64), np.asarray(counts, np.float64)
    if not 0 <= q <= 1:
        raise InputError(f"found the quantile {q:g}; expected 0 to 1")
    if upper.ndim != 1 or held.shape != (len(upper) + 1,) or not len(upper) or not np.isfinite(upper).all() or (np.diff(upper) <= 0).any():
        raise InputError(f"found {held.size} counts and {upper.size} bounds; expected increasing bounds and one count more")
    if not (np.isfinite(held).all() and held.min() >= 0):
        raise InputError("found a negative count; expected requests per bucket")
    return float(bucket_quantile(float(q), upper, held))


def bucketed(latency_ms: npt.ArrayLike, bounds: npt.ArrayLike = KNATIVE_BOUNDS_MS) -> npt.NDArray[np.float64]:
    """Requests per bucket; a latency that equals a bound belongs to the bucket below it, as Prometheus counts."""
    upper = np.asarray(bounds, np.float64)
    return np.bincount(np.searchsorted(upper, np.asarray(latency_ms, np.float64)), minlength=len(upper) + 1).astype(np.float64)
