"""The loops of the planner: the earliest feasible offset, one order after another, and the first shard size for which an order works."""

from __future__ import annotations

from typing import Any

from armillary.kernels import kernel


@kernel
def earliest(x: int, size: int, grain: int, shard: int) -> int:
    """The earliest feasible offset from `x` on, or -1."""
    for _ in range(2):
        cut = (x // shard + 1) * shard
        if x + size <= cut:
            return x
        shift = (cut - x) % grain
        if x + shift < cut and (x + shift + size <= cut + shard or shard % grain == 0):
            return x + shift
        # Nothing before the cut fits; a tensor that does not fit behind it fits nowhere, because cuts repeat.
        x = cut
    return -1


@kernel
def in_order(sizes: Any, grains: Any, order: Any, n: int, shard: int, offsets: Any) -> bool:
    x = 0
    for i in range(len(order)):
        t = order[i]
        at = earliest(x, sizes[t], grains[t], shard)
        if at < 0 or at + sizes[t] > n * shard:
            return False
        offsets[t] = at
        x = at + sizes[t]
    return True


@kernel
def closest(sizes: Any, grains: Any, n: int, shard: int, offsets: Any, placed: Any) -> bool:
    """Always place the tensor that leaves the smallest gap; of those, the one with the largest granularity, then the largest."""
    x = 0
    placed[:] = False
    for _ in range(len(sizes)):
        best, best_at = -1, 0
        for t in range(len(sizes)):
            if placed[t]:
                continue
            at = earliest(x, sizes[t], grains[t], shard)
            if at < 0:
                return False
            if best < 0 or at < best_at or (at == best_at and (grains[t], sizes[t]) > (grains[best], sizes[best])):
                best, best_at = t, at
        offsets[best], placed[best] = best_at, True
        x = best_at + sizes[best]
    return x <= n * shard


@kernel
def first_feasible(sizes: Any, grains: Any, orders: Any, n: int, start: int, last: int, step: int, offsets: Any, placed: Any) -> int:
    """The first shard in start, start + step, …, last that an order makes feasible, with its offsets; -1 if there is none."""
    shard = start
    few = len(sizes) <= 64  # Choosing the closest takes quadratic time.
    while shard <= last:
        for i in range(len(orders)):
            if in_order(sizes, grains, orders[i], n, shard, offsets):
                return shard
        if few and closest(sizes, grains, n, shard, offsets, placed):
            return shard
        shard += step
    return -1


@kernel
def first_alone(sizes: Any, grains: Any, start: int, last: int, step: int) -> int:
    """The first shard in start, start + step, …, last in which every tensor has a place if it is alone; -1 if there is none."""
    shard = start
    while shard <= last:
        good = True
        for t in range(len(sizes)):
            if earliest(0, sizes[t], grains[t], shard) < 0:
                good = False
                break
        if good:
            return shard
        shard += step
    return -1
