"""Who sends how many tokens to whom in a layer, and how many rows every expert gets: the routing of a trace counted over a placement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import kernel

from ..planning.placement import ExpertPlacement

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Traffic:
    """One layer. `pairs` [steps, from, to]: tokens sent, each once to a device however many of its experts are there; none to itself.

    `rows` [steps, devices, slots]: tokens that each expert in its slot computes. `local` of `activations` (token, expert) stay at home.
    """

    pairs: Ints
    rows: Ints
    local: int
    activations: int


def count_traffic(placement: ExpertPlacement, layer: int, chosen: npt.NDArray[np.int16], step: Ints, source: Ints, steps: int) -> Traffic:
    """chosen [tokens, k]; step and source [tokens]: when a token passes, and on which device it is.

    Of an expert's copies the one on the token's device serves it, where there is one; otherwise they take turns.
    """
    first, device, slot = placement.copies(layer)
    devices, slots = placement.physical.shape[1:]
    pairs = np.zeros((steps, devices, devices), np.int64)
    rows = np.zeros((steps, devices, slots), np.int64)
    kept = np.zeros(2, np.int64)
    _count(np.ascontiguousarray(chosen), step, source, first, device, slot, np.full(devices, -1, np.int64), pairs, rows, kept)
    return Traffic(pairs, rows, int(kept[0]), int(kept[1]))


@kernel
def _count(chosen: Any, step: Any, source: Any, first: Any, device: Any, slot: Any, sent: Any, pairs: Any, rows: Any, kept: Any) -> None:
    # sent[d] is the last token that went to device d.
    for i in range(chosen.shape[0]):
        s, here = step[i], source[i]
        for j in range(chosen.shape[1]):
            e = chosen[i, j]
            if e < 0:
                continue
            low, high = first[e], first[e + 1]
            at = low + i % (high - low)
            for c in range(low, high):
                if device[c] == here:
                    at = c
            d = device[at]
            rows[s, d, slot[at]] += 1
            kept[1] += 1
            if d == here:
                kept[0] += 1
            elif sent[d] != i:
                sent[d] = i
                pairs[s, here, d] += 1
