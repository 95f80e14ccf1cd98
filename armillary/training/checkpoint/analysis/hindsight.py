"""What hindsight would have done: the times at which profiles would have cost least, found by dynamic programming over a whole trace."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

#: The table has one entry per pair of iterations.
MOST_ITERATIONS = 4000


def best_activations(stalls: npt.ArrayLike, kappa_s: float) -> tuple[float, list[int]]:
    """(least cost in seconds, iterations that are profiled) where `stalls[s, t]` is the stall of iteration t under the profile of s ≤ t.

    cost(t) = min over s ≤ t of cost(s − 1) + κ + Σ stalls[s, s…t]; iteration 0 is always profiled.
    """
    table = np.asarray(stalls, np.float64)
    count = len(table)
    if table.shape != (count, count) or not 0 < count <= MOST_ITERATIONS or kappa_s < 0:
        wanted = f"a square table of 1 to {MOST_ITERATIONS} iterations, and a cost of at least 0"
        raise InputError(f"stalls: found shape {table.shape}; expected {wanted}")
    sums = np.cumsum(np.triu(table), axis=1)
    cost, last = np.zeros(count + 1), np.zeros(count, np.int64)
    for t in range(count):
        # Row s of the sums begins at s, because what lies before is 0 in the upper triangle.
        options = cost[: t + 1] + kappa_s + sums[: t + 1, t]
        last[t] = int(np.argmin(options))
        cost[t + 1] = options[last[t]]
    found, t = [], count - 1
    while t >= 0:
        found.append(int(last[t]))
        t = int(last[t]) - 1
    return float(cost[count]), found[::-1]
