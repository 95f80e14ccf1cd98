"""Counts, for a trace on a placement, the tokens that each device sends to each other in a layer, and the rows of every expert."""

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
    """The traffic of one layer. `pairs` [steps, from, to] counts tokens sent, each once per device, and none to itself.

    `rows` [steps, devices, slots] counts the tokens that the expert in each slot computes. `local` of `activations` (token, expert) pairs
    stay at home.
    """

    pairs: Ints
    rows: Ints
    local: int
    activations: int


def count_traffic(placement: ExpertPlacement, layer: int, chosen: npt.NDArray[np.int16], step: Ints, source: Ints, steps: int) -> Traffic:
    """Counts the traffic of chosen [tokens, k], given the step and the source device of each token [tokens].

    If the token's device has a copy of the expert, that copy serves it; otherwise the copies take turns.
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
