"""Small works, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.scheduling.functions import Calls, Fleet, FunctionsWork, NodeType, Profile
from armillary.scheduling.functions.workload import owned

STANDARD = NodeType("standard", 16, 1.0, 1.0, 65536)
FAST = NodeType("fast", 16, 1.6, 1.9, 65536)


def work(
    profiles: Sequence[Profile], calls: Sequence[tuple[int, float, float]], *, fleet: Fleet | None = None, noise: float = 0.0, seed: int = 0,
    stolen: dict[int, float] | None = None, peak: dict[int, float] | None = None, size: Sequence[float] | None = None, told: bool = False,
) -> FunctionsWork:  # fmt: skip
    """Calls as (function, arrival, time to the deadline), without noise, stragglers or spread of peaks unless told."""
    rng = np.random.default_rng(seed)
    n = len(calls)
    function = np.array([call[0] for call in calls], np.int64)
    arrival = np.array([call[1] for call in calls], np.float64)
    drawn = rng.lognormal(0.0, np.sqrt(np.log1p(noise**2)), n) if noise else np.ones(n)
    peaks = np.array([0.95 * profiles[f].memory_mb for f in function])
    for i, value in (peak or {}).items():
        peaks[i] = value
    slow = np.ones(n)
    for i, value in (stolen or {}).items():
        slow[i] = value
    made = Calls(
        function, arrival, arrival + np.array([call[2] for call in calls]), np.ones(n) if size is None else np.array(size, np.float64), drawn,
        slow, peaks,
    )  # fmt: skip
    return owned(fleet or Fleet((STANDARD,), (1,)), profiles, made, rng, sizes_known=told, misjudged=False)
