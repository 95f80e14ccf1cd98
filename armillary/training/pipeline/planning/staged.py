"""Partitions whose stages cost differently by their place: dynamic programming over a table of costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.kernels import loop

from ..simulation.schedule import IntArray
from ..simulation.simulator import FloatArray


def least_longest(cost: FloatArray) -> IntArray | None:
    """Cuts that minimise the longest stage, where `cost[q, i, j]` are the seconds of stage q with the layers from i to before j.

    Among equals the most even one is taken; None where no partition has finite cost.
    """
    cuts = _least_longest(np.ascontiguousarray(cost))
    return None if cuts[0] < 0 else cuts


@loop
def _least_longest(cost: Any) -> Any:
    parts, n = cost.shape[0], cost.shape[1] - 1
    best = np.full((parts + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    for j in range(1, parts + 1):
        for i in range(j, n + 1):
            for k in range(j - 1, i):
                best[j, i] = min(best[j, i], max(best[j - 1, k], cost[j - 1, k, i]))
    cuts = np.full(parts + 1, -1)
    if not np.isfinite(best[parts, n]):
        return cuts
    most = best[parts, n] * (1 + 1e-12)
    square = np.full((parts + 1, n + 1), np.inf)
    cut = np.zeros((parts + 1, n + 1), np.int64)
    square[0, 0] = 0.0
    for j in range(1, parts + 1):
        for i in range(j, n + 1):
            for k in range(j - 1, i):
                one = cost[j - 1, k, i]
                if one <= most and square[j - 1, k] + one * one < square[j, i]:
                    square[j, i] = square[j - 1, k] + one * one
                    cut[j, i] = k
    cuts[parts] = n
    for j in range(parts, 0, -1):
        cuts[j - 1] = cut[j, cuts[j]]
    return cuts


def least_phases(forward: FloatArray, backward: FloatArray, micros: int) -> IntArray | None:
    """Cuts that minimise warm-up + steady + ending phases of 1F1B, where `forward[s, i, j]` and `backward[s, i, j]` are seconds of stage s.

    From the last stage to the first: W_s = f_s + max(W_{s+1} + b_{s+1}, (p − s − 1)·f_s), E_s = b_s + max(E_{s+1} + f_{s+1},
    (p − s − 1)·b_s), M_s = max(M_{s+1}, f_s + b_s), and the suffix with the least W + E + (m − p + s)·M is kept (AdaPipe's recursion).
    """
    cuts = _least_phases(np.ascontiguousarray(forward), np.ascontiguousarray(backward), micros)
    return None if cuts[-1] < 0 else cuts


@loop
def _least_phases(forward: Any, backward: Any, micros: Any) -> Any:
    parts, n = forward.shape[0], forward.shape[1] - 1
    warm = np.full((parts + 1, n + 1), np.inf)
    end = np.full((parts + 1, n + 1), np.inf)
    most = np.full((parts + 1, n + 1), np.inf)
    next_f = np.zeros((parts + 1, n + 1))
    next_b = np.zeros((parts + 1, n + 1))
    cut = np.full((parts + 1, n + 1), -1)
    warm[parts, n] = end[parts, n] = most[parts, n] = 0.0
    for s in range(parts - 1, -1, -1):
        after = parts - s - 1
        steady = max(0, micros - after - 1)
        for i in range(s, n - after):
            least = np.inf
            for j in range(i + 1, n - after + 1):
                f, b = forward[s, i, j], backward[s, i, j]
                if not np.isfinite(f + b) or not np.isfinite(warm[s + 1, j]):
                    continue
                w = f + max(warm[s + 1, j] + next_b[s + 1, j], after * f)
                e = b + max(end[s + 1, j] + next_f[s + 1, j], after * b)
                m = max(most[s + 1, j], f + b)
                total = w + e + steady * m
                if total < least:
                    least = total
                    warm[s, i], end[s, i], most[s, i], next_f[s, i], next_b[s, i], cut[s, i] = w, e, m, f, b, j
    cuts = np.full(parts + 1, -1)
    cuts[0] = 0
    for s in range(parts):
        if cut[s, cuts[s]] < 0:
            return cuts
        cuts[s + 1] = cut[s, cuts[s]]
    return cuts
