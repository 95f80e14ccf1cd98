"""PivotRepair: the pipelined tree with the best bottleneck.

A node whose downlink takes several streams at rate R may have several children. A tree of rate R exists if and only if k helpers have
u_i ≥ R and they and the destination can take k streams in all: ⌊d_r / R⌋ + the sum of the k largest ⌊d_i / R⌋ ≥ k, with at least one at
the destination. R is one of the u_i, or a d_i or d_r divided by 1 … k, so a search over these candidates is exact.

PivotRepair: fast pipelined repair for erasure-coded hot storage, ICDCS 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .plans.plan import PIPELINE
from .plans.planner import DESTINATION, Ends, Part, Planner, Split

#: A quotient that is below a whole number by at most this counts as that number.
CLOSE = 1e-9


@dataclass(frozen=True)
class Pivot(Planner):
    """The best bottleneck tree over k helpers (ICDCS 2022)."""

    name: ClassVar[str] = "pivot"

    def split(self, ends: Ends) -> Split:
        """The rate is the largest R at which a tree exists."""
        k = ends.k
        over = np.arange(1, k + 1)
        candidates = np.concatenate([ends.up, (ends.down[:, None] / over).ravel(), ends.into / over])
        candidates = np.unique(candidates[candidates > 0])
        low, high = 0, len(candidates)
        # Trees exist below some rate and none above it.
        while low < high:
            middle = (low + high) // 2
            if streams(ends, float(candidates[middle])) is None:
                high = middle
            else:
                low = middle + 1
        if low == 0:
            return Split(0.0, PIPELINE, [])
        rate = float(candidates[low - 1])
        found = streams(ends, rate)
        assert found is not None
        return Split(rate, PIPELINE, [Part(1.0, tree(*found, ends))])


def streams(ends: Ends, rate: float) -> tuple[list[int], list[int], int] | None:
    """(helpers, the streams that each can take, the destination's) at this rate, most receptive first; None if no tree exists."""
    k = ends.k
    able = np.flatnonzero(ends.up >= rate * (1 - CLOSE))
    root = min(int(ends.into / rate + CLOSE), k)
    if len(able) < k or root < 1:
        return None
    takes = np.minimum((ends.down[able] / rate + CLOSE).astype(np.int64), k)
    order = np.lexsort((-ends.up[able], -takes))[:k]
    if root + int(takes[order].sum()) < k:
        return None
    return able[order].tolist(), takes[order].tolist(), root


def tree(helpers: list[int], takes: list[int], root: int, ends: Ends) -> tuple[tuple[int, int], ...]:
    """Attaches helpers to the highest vertex that can take one more, in the same rack where there is a choice. Children come first."""
    open_slots, depth, edges = {DESTINATION: root}, {DESTINATION: 0}, []
    for helper, room in zip(helpers, takes):
        rack = ends.rack[helper]
        options = [v for v, left in open_slots.items() if left > 0]
        above = min(options, key=lambda v: (depth[v], (ends.into_rack if v == DESTINATION else ends.rack[v]) != rack))
        open_slots[above] -= 1
        open_slots[helper], depth[helper] = room, depth[above] + 1
        edges.append((helper, above))
    return tuple(reversed(edges))
