"""Counts how often a token that one expert of a layer served is served by each expert of the next layer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .trace import RoutingTrace


def coactivation(trace: RoutingTrace) -> npt.NDArray[np.float64]:
    """Returns the counts of (expert in a layer, expert in the next) over all tokens, [layers − 1, experts, experts]."""
    found = np.zeros((trace.layers - 1, trace.experts, trace.experts))
    for layer in range(trace.layers - 1):
        a, b = trace.chosen[layer].astype(np.int64), trace.chosen[layer + 1].astype(np.int64)
        for i in range(trace.k):
            for j in range(trace.k):
                keep = (a[:, i] >= 0) & (b[:, j] >= 0)
                both = a[keep, i] * trace.experts + b[keep, j]
                found[layer] += np.bincount(both, minlength=trace.experts**2).reshape(trace.experts, -1)
    return found
