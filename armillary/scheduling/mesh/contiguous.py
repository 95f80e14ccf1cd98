"""Contiguous: cut the space-filling curve into one piece per rank, at the costs that were measured.

From the last rank backwards, a rank takes blocks until its cost reaches the remaining cost divided by the remaining ranks, or until just
one block is left for each of the others. This is the rule of AMR frameworks when they are given costs. A rank overshoots by up to one
block, and nothing corrects that later.

The Athena++ Adaptive Mesh Refinement Framework, The Astrophysical Journal Supplement Series 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop

from .octree.mesh import Floats, Ints
from .placement.policy import Policy, State, checked


def contiguous(costs: Floats, ranks: int) -> Ints:
    """The rank of each block, which never decreases along the curve; every rank has a block."""
    placement = np.empty(len(costs), np.int64)
    cut_from_the_end(costs, 0, len(costs), 0, ranks, placement)
    return placement


@loop
def cut_from_the_end(costs, first, count, first_rank, ranks, placement):  # type: ignore[no-untyped-def]
    """Places the blocks first … first + count − 1 on as many ranks from `first_rank` on."""
    left = 0.0
    for b in range(first, first + count):
        left += costs[b]
    rank, mine, target = ranks - 1, 0.0, left / ranks
    for at in range(count - 1, -1, -1):
        mine += costs[first + at]
        placement[first + at] = first_rank + rank
        # `at` blocks remain for `rank` ranks.
        if rank > 0 and (mine >= target or at == rank):
            left -= mine
            target = left / rank
            mine = 0.0
            rank -= 1


@dataclass(frozen=True)
class Contiguous(Policy):
    """Cuts the curve at measured costs, greedily from the last rank."""

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        return contiguous(checked(state.costs, state.ranks), state.ranks)
