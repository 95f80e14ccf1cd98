"""LPT: the longest block first, always to the rank with the least to do.

Blocks are taken by decreasing cost, and the maximum is never more than 4/3 − 1/(3r) times the least possible one. Neighbours on the curve
end up anywhere, so nearly every ghost exchange leaves the node.

Bounds on Multiprocessing Timing Anomalies, SIAM Journal on Applied Mathematics 1969.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop

from .octree.mesh import Floats, Ints
from .placement.policy import Policy, State, checked


def lpt(costs: Floats, ranks: int) -> Ints:
    """The rank of each block."""
    placement = np.empty(len(costs), np.int64)
    spread(costs, np.arange(len(costs)), np.arange(ranks), placement)
    return placement


def spread(costs: Floats, blocks: Ints, ranks: Ints, placement: Ints) -> None:
    """Places these blocks (increasing numbers) on these ranks; equal costs by number, equal loads by position in `ranks`."""
    order = blocks[np.argsort(-costs[blocks], kind="stable")]
    _fill(costs, order, ranks, placement)


@loop
def _fill(costs, order, ranks, placement):  # type: ignore[no-untyped-def]
    # A heap of positions in `ranks`, by load and then by position; at first all loads are 0, so any increasing list is one.
    count = len(ranks)
    heap = np.arange(count)
    load = np.zeros(count)
    for block in order:
        top = heap[0]
        placement[block] = ranks[top]
        load[top] += costs[block]
        at = 0
        while True:
            child = 2 * at + 1
            if child >= count:
                break
            if child + 1 < count:
                one, other = heap[child], heap[child + 1]
                if load[other] < load[one] or (load[other] == load[one] and other < one):
                    child += 1
            one = heap[child]
            if load[top] < load[one] or (load[top] == load[one] and top < one):
                break
            heap[at] = one
            at = child
        heap[at] = top


@dataclass(frozen=True)
class Lpt(Policy):
    """The longest block first, to the rank with the least to do."""

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        return lpt(checked(state.costs, state.ranks), state.ranks)
