"""Measured costs that a balancer may trust.

A block's first measurement after a migration is cold, a single one is noisy, and a throttled node makes all its blocks look costly, so that
a balancer would move work around a fault instead of someone repairing it. So the first measurement after a migration is dropped, the least
of the last three is taken, and slow ranks are named, with their factor taken out of the costs.

The published rule flags a rank if each of its blocks takes more than 1.3 times as long as the nodes' median. That is right where all
blocks do equal work (`equal_work=True`: a health check); on a mesh whose blocks differ, a rank that holds costly blocks would be flagged.
By default a node is therefore judged by blocks which were also measured on another node: all of them must have been slower here (our
design).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.mesh.octree.mesh import Floats, Ints
from armillary.scheduling.mesh.octree.refinement import Change

KEPT = 3
SLOW = 1.3


class Telemetry:
    """The last measurements of each block while a code runs."""

    def __init__(self, costs: Floats, hygiene: bool = True) -> None:
        self._hygiene = hygiene
        self._recent = np.full((KEPT, len(costs)), np.inf)
        self._recent[0] = costs

    @property
    def known(self) -> Floats:
        """The least of the last three measurements of each block, or the last one without hygiene."""
        found: Floats = self._recent.min(axis=0) if self._hygiene else self._recent[0]
        return found

    def change(self, change: Change) -> None:
        """The mesh changed: children inherit what is known of their parent, and a merged block takes the mean."""
        inherited = change.mapped(self.known)
        recent = np.full((KEPT, len(inherited)), np.inf)
        recent[0] = inherited
        # A block that stays keeps its measurements.
        kept = np.flatnonzero(change.same & (np.diff(change.first) == 1))
        recent[:, kept] = self._recent[:, change.source[change.first[kept]]]
        self._recent = recent

    def measured(self, costs: Floats, moved: npt.NDArray[np.bool_]) -> None:
        """One more step was measured; blocks that moved before it are cold and are left out."""
        if not self._hygiene:
            moved = np.zeros_like(moved)
        warm = np.flatnonzero(~moved)
        self._recent[1:, warm] = self._recent[:-1, warm].copy()
        self._recent[0, warm] = costs[warm]


@dataclass(frozen=True, eq=False)
class Trace:
    """Measurements: step, block, rank and µs of each, in any order; `per_node` ranks stand on one node."""

    step: Ints
    block: Ints
    rank: Ints
    cost_us: Floats
    per_node: int = 16


@dataclass(frozen=True, eq=False)
class Cleaned:
    """Blocks with their costs in µs, and slow ranks with the factor that was taken out of their blocks' costs."""

    block: Ints
    cost_us: Floats
    slow: dict[int, float]


def clean(trace: Trace, *, equal_work: bool = False, factor: float = SLOW) -> Cleaned:
    """The costs of the blocks of the last step, without cold measurements, noise and slow ranks."""
    columns = [np.asarray(column) for column in (trace.step, trace.block, trace.rank, trace.cost_us)]
    if len({len(column) for column in columns}) != 1 or not len(columns[0]):
        raise InputError("found columns of different lengths, or none; expected step, block, rank and cost of each measurement")
    step, block, rank = (column.astype(np.int64) for column in columns[:3])
    cost = columns[3].astype(np.float64)
    if not np.all(np.isfinite(cost) & (cost >= 0)) or min(block.min(), rank.min()) < 0 or trace.per_node < 1:
        raise InputError("found a negative or infinite cost, block or rank; expected numbers from 0 on")
    order = np.lexsort((step, block))
    step, block, rank, cost = step[order], block[order], rank[order], cost[order]
    first = np.concatenate([[True], block[1:] != block[:-1]])
    cold = ~first & np.concatenate([[False], rank[1:] != rank[:-1]])
    last = step.max()
    ends = np.flatnonzero((step == last) & np.concatenate([block[1:] != block[:-1], [True]]))
    begins = np.flatnonzero(first)[np.cumsum(first)[ends] - 1]
    slow = _slow_alone(rank[ends], cost[ends], trace.per_node, factor) if equal_work else _slow_beside(
        rank, cost, begins, ends, cold, trace.per_node, factor
    )  # fmt: skip
    for r, times in slow.items():
        cost[rank == r] /= times
    found = np.empty(len(ends))
    for at, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        warm = cost[begin : end + 1][~cold[begin : end + 1]][-KEPT:]
        found[at] = warm.min()
    return Cleaned(block[ends], found, slow)


def _slow_alone(rank: Ints, cost: Floats, per_node: int, factor: float) -> dict[int, float]:
    """Ranks of which every block takes more than `factor` times the median of the nodes' medians."""
    node = rank // per_node
    usual = float(np.median([np.median(cost[node == n]) for n in np.unique(node)]))
    found = {}
    for r in np.unique(rank).tolist():
        mine = cost[rank == r]
        if usual > 0 and mine.min() > factor * usual:
            found[r] = float(np.median(mine)) / usual
    return found


def _slow_beside(
    rank: Ints, cost: Floats, begins: Ints, ends: Ints, cold: npt.NDArray[np.bool_], per_node: int, factor: float
) -> dict[int, float]:  # fmt: skip
    """Ranks of nodes on which every block that was seen elsewhere too is slower by `factor`; at least half of a node's must have been."""
    ratios: dict[int, list[float]] = {}
    blocks: dict[int, int] = {}
    ranks: dict[int, set[int]] = {}
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        there, seen = rank[begin : end + 1] // per_node, cost[begin : end + 1]
        here = int(there[-1])
        warm = ~cold[begin : end + 1]
        blocks[here] = blocks.get(here, 0) + 1
        ranks.setdefault(here, set()).add(int(rank[end]))
        mine, others = seen[warm & (there == here)], seen[warm & (there != here)]
        if len(mine) and len(others) and others.min() > 0:
            ratios.setdefault(here, []).append(float(mine[-KEPT:].min() / others.min()))
    found = {}
    for node, seen_here in ratios.items():
        if 2 * len(seen_here) >= blocks[node] and min(seen_here) > factor:
            found.update(dict.fromkeys(sorted(ranks[node]), float(np.median(seen_here))))
    return found
