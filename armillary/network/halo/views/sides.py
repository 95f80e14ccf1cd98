"""Where the halos of a field lie: for each of its neighbours, what is sent there and where that neighbour's values arrive.

A neighbour stands at an offset of -1, 0 or 1 along each axis. Fields with a value on the last line of nodes or faces (`extra`) share that
line with the neighbour, so it is neither sent nor received.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from armillary.errors import InputError

Slices = tuple[slice, ...]
Offset = tuple[int, ...]


def offsets(axes: int) -> list[Offset]:
    """Return the offsets of all neighbours: sides, edges and corners."""
    return [o for o in itertools.product((-1, 0, 1), repeat=axes) if any(o)]


def opposite(offset: Offset) -> Offset:
    """Return the offset from which a message to `offset` comes at its receiver."""
    return tuple(-x for x in offset)


def sent(cells: Sequence[int], extra: Sequence[int], width: int, depth: int, offset: Offset) -> Slices:
    """Return the layers of the interior that go to the neighbour at an offset."""
    found = []
    for x, n, e in zip(offset, cells, extra):
        low = width if x == 0 else width + e if x < 0 else width + n - depth
        found.append(slice(low, width + n + e) if x == 0 else slice(low, low + depth))
    return tuple(found)


def received(cells: Sequence[int], extra: Sequence[int], width: int, depth: int, offset: Offset) -> Slices:
    """Return the layers of the halo that the neighbour at an offset fills."""
    found = []
    for x, n, e in zip(offset, cells, extra):
        low = width if x == 0 else width - depth if x < 0 else width + n + e
        found.append(slice(low, width + n + e) if x == 0 else slice(low, low + depth))
    return tuple(found)


def neighbours(rank: int, dims: Sequence[int], periodic: Sequence[bool]) -> dict[Offset, int]:
    """Return the rank at each offset of a grid of ranks that are numbered row by row; beyond an end there is none."""
    at, rest = [], rank
    for n in reversed(dims):
        at.append(rest % n)
        rest //= n
    at.reverse()
    found = {}
    for offset in offsets(len(dims)):
        there = [x + y for x, y in zip(at, offset)]
        if all(wraps or 0 <= x < n for x, n, wraps in zip(there, dims, periodic)):
            number = 0
            for x, n in zip(there, dims):
                number = number * n + x % n
            found[offset] = number
    return found


def grid(ranks: int, axes: int, decomposition: Sequence[int] | None, periodic: Sequence[bool] | bool) -> tuple[list[int], list[bool]]:
    """Return the ranks along each axis and whether each wraps around; without a decomposition all ranks stand along the first axis."""
    dims = [ranks] + [1] * (axes - 1) if decomposition is None else [int(n) for n in decomposition]
    wraps = [periodic] * axes if isinstance(periodic, bool) else [bool(p) for p in periodic]
    if len(dims) != axes or len(wraps) != axes or min(dims) < 1 or math.prod(dims) != ranks:
        raise InputError(f"decomposition: found {dims} with {len(wraps)} axes; expected {axes} numbers with a product of {ranks} ranks")
    return dims, wraps
