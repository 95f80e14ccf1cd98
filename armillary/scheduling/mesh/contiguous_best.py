"""The best contiguous placement of all: pieces of the curve of any length, with the least possible maximum.

A bisection over the maximum asks a greedy sweep whether one piece per rank can stay below it. No balancer that keeps the curve in order
does better, so what this leaves is the price of contiguity.

Partitioning of chains, a textbook method: Fast Optimal Load Balancing Algorithms for 1D Partitioning, JPDC 2004.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop

from .octree.mesh import Floats, Ints
from .placement.policy import Policy, State, checked


def best_contiguous(costs: Floats, ranks: int) -> Ints:
    """The rank of each block; every rank has a block."""
    placement = np.empty(len(costs), np.int64)
    _cut(costs, ranks, placement)
    return placement


@loop
def _fits(costs, ranks, bound, placement):  # type: ignore[no-untyped-def]
    """The largest load if every rank takes what stays within the bound and leaves a block for each later rank, or inf if it fails."""
    at, largest = 0, 0.0
    for rank in range(ranks):
        mine = costs[at]
        placement[at] = rank
        at += 1
        if mine > bound:
            return np.inf
        while len(costs) - at > ranks - 1 - rank and mine + costs[at] <= bound:
            mine += costs[at]
            placement[at] = rank
            at += 1
        largest = max(largest, mine)
    return largest if at == len(costs) else np.inf


@loop
def _cut(costs, ranks, placement):  # type: ignore[no-untyped-def]
    high = _fits(costs, ranks, np.inf, placement)
    low = max(costs.sum() / ranks, costs.max()) * (1 - 1e-12)
    # Invariant: a placement with the maximum `high` exists, and none below `low`.
    while high > low:
        middle = 0.5 * (low + high)
        found = _fits(costs, ranks, middle, placement)
        if found <= middle and found < high:
            high = found
        elif middle <= low or middle >= high:
            break
        else:
            low = middle
    _fits(costs, ranks, high, placement)


@dataclass(frozen=True)
class ContiguousBest(Policy):
    """Cuts the curve at measured costs, with the least possible maximum."""

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        return best_contiguous(checked(state.costs, state.ranks), state.ranks)
