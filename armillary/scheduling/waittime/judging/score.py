"""The errors of predicted waits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: Runs shorter than this count as this long in the slowdown, and a prediction within this many seconds is near.
BOUND_S, NEAR_S = 10.0, 600.0
#: The levels of the two ends of a 90 % interval.
LOW, HIGH = 0.05, 0.95


def slowdown(wait_s: Floats, run_s: Floats, nodes: npt.NDArray[np.int64]) -> Floats:
    """The bounded slowdown per processor, max((w + r) / (p · max(r, 10)), 1)."""
    return np.maximum((wait_s + run_s) / (nodes * np.maximum(run_s, BOUND_S)), 1.0)


def pinball(bound_s: Floats, wait_s: Floats, level: float) -> float:
    """The mean pinball loss of a predicted quantile, in seconds."""
    over = wait_s - bound_s
    return float(np.maximum(level * over, (level - 1.0) * over).mean())


def scores(
    point_s: Floats, low_s: Floats, high_s: Floats, wait_s: Floats, run_s: Floats, nodes: npt.NDArray[np.int64]
) -> dict[str, float]:  # fmt: skip
    """The arena's errors of predictions and their 90 % intervals; run times are known to the judge alone."""
    error = np.abs(point_s - wait_s)
    return {
        "mae_s": float(error.mean()),
        "median_ae_s": float(np.median(error)),
        "within_10min": float((error <= NEAR_S).mean()),
        "slowdown_mae": float(np.abs(slowdown(point_s, run_s, nodes) - slowdown(wait_s, run_s, nodes)).mean()),
        "coverage_90": float(((low_s <= wait_s) & (wait_s <= high_s)).mean()),
        "pinball_90": (pinball(low_s, wait_s, LOW) + pinball(high_s, wait_s, HIGH)) / 2.0,
    }
