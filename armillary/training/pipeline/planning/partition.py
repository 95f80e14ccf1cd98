"""Exact partitions of a row of layers into stages."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from ..simulation.schedule import IntArray
from ..simulation.simulator import FloatArray
from .layers import Layers


def balanced_cuts(layers: Layers, parts: int, extra: FloatArray | None = None) -> IntArray:
    """Cuts that minimise the longest stage (forward, both gradients, and `extra` seconds per layer), by dynamic programming in O(L²·D).

    Of all partitions whose longest stage is as short as can be, it takes the most even one (least sum of squares).
    """
    if not 1 <= parts <= layers.body:
        raise InputError(f"found {parts} stages for {layers.body} body layers; expected at least one layer per stage")
    seconds = layers.forward + layers.backward + (0.0 if extra is None else extra)
    body = seconds[layers.first : layers.first + layers.body].copy()
    body[0] += seconds[: layers.first].sum()
    body[-1] += seconds[layers.first + layers.body :].sum()
    return _min_max(np.concatenate([[0.0], np.cumsum(body)]), parts)


@loop
def _min_max(total: Any, parts: Any) -> Any:
    n = total.shape[0] - 1
    best = np.full((parts + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    for j in range(1, parts + 1):
        for i in range(j, n + 1):
            for k in range(j - 1, i):
                best[j, i] = min(best[j, i], max(best[j - 1, k], total[i] - total[k]))
    most = best[parts, n] * (1 + 1e-12)
    square = np.full((parts + 1, n + 1), np.inf)
    cut = np.zeros((parts + 1, n + 1), np.int64)
    square[0, 0] = 0.0
    for j in range(1, parts + 1):
        for i in range(j, n + 1):
            for k in range(j - 1, i):
                one = total[i] - total[k]
                if one <= most and square[j - 1, k] + one * one < square[j, i]:
                    square[j, i] = square[j - 1, k] + one * one
                    cut[j, i] = k
    cuts = np.zeros(parts + 1, np.int64)
    cuts[parts] = n
    for j in range(parts, 0, -1):
        cuts[j - 1] = cut[j, cuts[j]]
    return cuts
