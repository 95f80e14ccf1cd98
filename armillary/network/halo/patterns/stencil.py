"""`stencil3d`: every rank has a cube of cells and exchanges faces, edges and corners, as its stencil of 7, 19 or 27 points needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from armillary.errors import InputError

from .pattern import Pattern, Table, table_of

#: The most axes along which a neighbour of the stencil may differ.
POINTS = {7: 1, 19: 2, 27: 3}


def stencil_table(dims: Sequence[int], cells: int, points: int = 27, itemsize: int = 8) -> Table:
    """Return the messages of one exchange with a halo of width 1; the outer sides of the box have no neighbours."""
    if points not in POINTS:
        raise InputError(f"points: found {points}; expected 7, 19 or 27")
    if len(dims) != 3 or min(dims) < 1 or cells < 1:
        raise InputError(f"decomposition: found {list(dims)} with {cells} cells per side; expected three numbers and a cell at least")
    offsets = [o for o in itertools.product((-1, 0, 1), repeat=3) if 0 < sum(map(abs, o)) <= POINTS[points]]
    sent: list[dict[int, int]] = []
    for at in np.ndindex(*dims):
        mine: dict[int, int] = {}
        for offset in offsets:
            there = [x + y for x, y in zip(at, offset)]
            if all(0 <= x < n for x, n in zip(there, dims)):
                other = (there[0] * dims[1] + there[1]) * dims[2] + there[2]
                mine[other] = itemsize * cells ** (3 - sum(map(abs, offset)))
        sent.append(mine)
    return table_of(sent)


def stencil3d(dims: Sequence[int], cells: int, points: int, per_node: int, iterations: int) -> Pattern:
    """Return the pattern of a stencil that repeats itself."""
    table = stencil_table(dims, cells, points)
    assert len(table) == math.prod(dims)
    return Pattern((table,), (0,) * iterations, per_node)


def at_random(dims: Sequence[int], cells: int, per_node: int, iterations: int, rng: np.random.Generator) -> Pattern:
    """Return a stencil whose messages have a random size, up to twice the usual one, in every iteration."""
    table = stencil_table(dims, cells, 27)

    def drawn() -> Table:
        return tuple(tuple((other, int(nbytes * 2 * rng.random()) + 1) for other, nbytes in sent) for sent in table)

    return Pattern(tuple(drawn() for _ in range(iterations)), tuple(range(iterations)), per_node)
