"""CDP: the best contiguous placement in which ranks differ by at most one block, found by dynamic programming.

n blocks on r ranks leave ranks of a = ⌊n/r⌋ and of b = ⌈n/r⌉ blocks. dp[i, j] is the least maximum with i a-pieces and j b-pieces, which
cover the first l = i·a + j·b blocks:

    dp[i, j] = min(max(dp[i−1, j], cost(l − a, l)), max(dp[i, j−1], cost(l − b, l)))

For many ranks the curve is first cut into chunks of at most 512 ranks by cumulative cost, so that the table never exceeds a chunk's. If r
divides n there is nothing to choose among such placements, and the greedy contiguous placement is taken instead.

Part of: Lessons from Profiling and Optimizing Placement in AMR Codes (CPLX), IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop
from armillary.parameters import parameter

from .contiguous import cut_from_the_end
from .octree.mesh import Floats, Ints
from .placement.policy import Policy, State, checked

EVEN = ("contiguous", "equal")
#: Ranks of the largest chunk; its table has up to (chunk / 2)² entries.
MOST_CHUNK = 8192


def cdp(costs: Floats, ranks: int, chunk: int = 512, even: str = "contiguous") -> Ints:
    """The rank of each block."""
    placement = np.empty(len(costs), np.int64)
    sizes, bounds = chunks(costs, ranks, chunk)
    prefix = np.concatenate([[0.0], np.cumsum(costs)])
    first_rank = 0
    for size, first, end in zip(sizes.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        solve_chunk(costs, prefix, first, end - first, first_rank, size, even == "equal", placement)
        first_rank += size
    return placement


def chunks(costs: Floats, ranks: int, chunk: int) -> tuple[Ints, Ints]:
    """The number of ranks of each chunk, and the first block of each with the end of the last."""
    count = -(-ranks // chunk)
    sizes = np.full(count, ranks // count)
    sizes[: ranks % count] += 1
    bounds = np.empty(count + 1, np.int64)
    _bounds(costs, sizes, bounds)
    return sizes, bounds


@loop
def _bounds(costs, sizes, bounds):  # type: ignore[no-untyped-def]
    """A chunk ends once it has a block per rank and its share of the cost that is left, or when the later ranks need all blocks left."""
    left, ranks_left, at = 0.0, 0, 0
    for cost in costs:
        left += cost
    for size in sizes:
        ranks_left += size
    for q in range(len(sizes)):
        bounds[q] = at
        target = left * sizes[q] / ranks_left - 1e-12
        ranks_left -= sizes[q]
        taken, mine = 0, 0.0
        while len(costs) - at > ranks_left and (q == len(sizes) - 1 or taken < sizes[q] or mine < target):
            mine += costs[at]
            taken += 1
            at += 1
        left -= mine
    bounds[len(sizes)] = at


@loop
def solve_chunk(costs, prefix, first, count, first_rank, ranks, equal, placement):  # type: ignore[no-untyped-def]
    """Places `count` blocks from `first` on, on as many ranks from `first_rank` on."""
    a = count // ranks
    b = a + 1
    many = count - a * ranks
    few = ranks - many
    if many == 0:
        if equal:
            for at in range(count):
                placement[first + at] = first_rank + at // a
        else:
            cut_from_the_end(costs, first, count, first_rank, ranks, placement)
        return
    best = np.empty((few + 1, many + 1))
    best[0, 0] = 0.0
    for i in range(few + 1):
        for j in range(many + 1):
            end = first + i * a + j * b
            found = 0.0 if i + j == 0 else np.inf
            if i > 0:
                found = max(best[i - 1, j], prefix[end] - prefix[end - a])
            if j > 0:
                found = min(found, max(best[i, j - 1], prefix[end] - prefix[end - b]))
            best[i, j] = found
    i, j = few, many
    for rank in range(ranks - 1, -1, -1):
        end = first + i * a + j * b
        short = i > 0
        if i > 0 and j > 0:
            with_a = max(best[i - 1, j], prefix[end] - prefix[end - a])
            short = with_a <= max(best[i, j - 1], prefix[end] - prefix[end - b])
        size = a if short else b
        placement[end - size : end] = first_rank + rank
        if short:
            i -= 1
        else:
            j -= 1


@dataclass(frozen=True)
class Cdp(Policy):
    """The best contiguous placement of equally many blocks, give or take one, per rank."""

    chunk: int = parameter(512, "ranks that are solved together", range=(1, MOST_CHUNK))
    even: str = parameter("contiguous", "what is done if the ranks divide the blocks: cut at costs, or equal pieces", choices=EVEN)

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        return cdp(checked(state.costs, state.ranks), state.ranks, self.chunk, self.even)
