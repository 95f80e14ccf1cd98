"""The built-in graphs: random sparse ones, Moore and von Neumann neighbourhoods on periodic grids, and those of sparse matrices.

`random:density` has each ordered pair of ranks with that probability. In `moore:d,r` a rank's neighbours are all ranks at most r steps
away on every axis of a periodic d-dimensional grid, and in `neumann:d,r` those at most r steps away in all. `spmm-...` is the graph of a
sparse matrix times a dense block: rank i needs the rows of rank j if a row of i has a column in j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

from .neighbours import Ints, Neighbours, from_edges, from_matrix

#: The most rows of a built-in matrix per rank; blocks of fewer than 8 times as many bytes have fewer rows.
ROWS_PER_RANK = 64
#: The probabilities of R-MAT's four quarters, and its edges per row.
RMAT = (0.57, 0.19, 0.19, 0.05)
RMAT_DEGREE = 8
MATRICES = ("banded", "rmat", "poisson")


class Matrix(NamedTuple):
    """The positions of a square sparse matrix's entries, and its number of rows."""

    row: Ints
    column: Ints
    rows: int


def named(kind: str, ranks: int, rng: np.random.Generator) -> Neighbours:
    """The graph of this name: `random:0.1`, `moore:2,3` or `neumann:3,1`."""
    family, _, said = kind.partition(":")
    try:
        if family == "random":
            return random(ranks, float(said), rng)
        if family in ("moore", "neumann"):
            dimensions, radius = (int(word) for word in said.split(","))
            return grid(ranks, dimensions, radius, family == "moore")
    except ValueError as error:
        raise InputError(f'found "{kind}"; expected random:density, moore:d,r or neumann:d,r') from error
    raise unknown("graph", kind, ["random:density", "moore:d,r", "neumann:d,r"])


def random(ranks: int, density: float, rng: np.random.Generator) -> Neighbours:
    """Each ordered pair of different ranks with probability `density`."""
    if not 0 <= density <= 1:
        raise InputError(f"found density {density}; expected 0 to 1")
    needs = rng.random((ranks, ranks), dtype=np.float32) < np.float32(density)
    np.fill_diagonal(needs, False)
    return from_matrix(needs)


def grid(ranks: int, dimensions: int, radius: int, corners: bool) -> Neighbours:
    """The Moore (`corners`) or von Neumann neighbourhood on a periodic grid; where it meets itself around it, a rank counts once."""
    if not 1 <= dimensions <= 4 or not 1 <= radius <= 64:
        raise InputError(f"found {dimensions} dimensions and radius {radius}; expected 1 to 4 and 1 to 64")
    sides = balanced(ranks, dimensions)
    steps = np.stack(np.meshgrid(*[np.arange(-radius, radius + 1)] * dimensions, indexing="ij"), axis=-1).reshape(-1, dimensions)
    if not corners:
        steps = steps[np.abs(steps).sum(axis=1) <= radius]
    steps = np.unique(steps % np.array(sides), axis=0)
    here = np.stack(np.unravel_index(np.arange(ranks), sides), axis=1)
    there = (here[:, None, :] + steps[None, :, :]) % np.array(sides)
    to = np.ravel_multi_index(tuple(there[..., axis] for axis in range(dimensions)), sides)
    give = np.repeat(np.arange(ranks), len(steps))
    kept = give != to.ravel()
    return from_edges(ranks, give[kept], to.ravel()[kept])


def balanced(ranks: int, dimensions: int) -> tuple[int, ...]:
    """The sides of a grid of this many ranks, as equal as they can be, the largest first."""
    sides = [1] * dimensions
    for prime in sorted(_primes(ranks), reverse=True):
        sides[sides.index(min(sides))] *= prime
    return tuple(sorted(sides, reverse=True))


def _primes(number: int) -> list[int]:
    found, prime = [], 2
    while number > 1:
        while number % prime == 0:
            found.append(prime)
            number //= prime
        prime += 1
    return found


def matrix(name: str, ranks: int, rows_per_rank: int, rng: np.random.Generator) -> Matrix:
    """A banded matrix, an R-MAT graph, or the 27-point Poisson problem in three dimensions."""
    rows = rows_per_rank * ranks
    if name == "banded":
        # The band reaches about three ranks to either side, and a third of it is filled.
        reach = 3 * rows_per_rank + rows_per_rank // 2
        row = np.repeat(np.arange(rows), 2 * reach // 3)
        column = row + rng.integers(-reach, reach + 1, len(row))
        kept = (column >= 0) & (column < rows)
        return _unique(np.concatenate((row[kept], np.arange(rows))), np.concatenate((column[kept], np.arange(rows))), rows)
    if name == "rmat":
        return _rmat(rows, rng)
    if name == "poisson":
        return _poisson(rows)
    raise unknown("matrix", name, MATRICES)


def _rmat(rows: int, rng: np.random.Generator) -> Matrix:
    bits = max(1, int(rows - 1).bit_length())
    count = RMAT_DEGREE * rows
    row, column = np.zeros(count, np.int64), np.zeros(count, np.int64)
    ends = np.cumsum(RMAT)
    for _ in range(bits):
        quarter = np.searchsorted(ends[:3], rng.random(count), side="right")
        row, column = 2 * row + quarter // 2, 2 * column + quarter % 2
    kept = (row < rows) & (column < rows)
    return _unique(np.concatenate((row[kept], np.arange(rows))), np.concatenate((column[kept], np.arange(rows))), rows)


def _poisson(rows: int) -> Matrix:
    sides = balanced(rows, 3)
    here = np.stack(np.unravel_index(np.arange(rows), sides), axis=1)[:, None, :]
    steps = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(1, 27, 3)
    there = here + steps
    inside = ((there >= 0) & (there < np.array(sides))).all(axis=2)
    column = np.ravel_multi_index(tuple(there[inside][:, axis] for axis in range(3)), sides)
    return _unique(np.repeat(np.arange(rows), inside.sum(axis=1)), column, rows)


def _unique(row: npt.NDArray[np.int64], column: npt.NDArray[np.int64], rows: int) -> Matrix:
    place = np.unique(row * rows + column)
    return Matrix(place // rows, place % rows, rows)


def of_matrix(found: Matrix, ranks: int) -> Neighbours:
    """Who needs whose rows: the owner of a row needs from the owner of a column where the matrix has an entry."""
    owner = owners(found.rows, ranks)
    pairs = np.unique(owner[found.column] * ranks + owner[found.row])
    give, take = pairs // ranks, pairs % ranks
    kept = give != take
    return from_edges(ranks, give[kept], take[kept])


def owners(rows: int, ranks: int) -> Ints:
    """The rank of each row if rows are dealt in blocks that differ by at most one row, the larger ones first."""
    return np.repeat(np.arange(ranks, dtype=np.int64), rows_of(rows, ranks))


def rows_of(rows: int, ranks: int) -> Ints:
    """The number of rows of each rank."""
    return rows // ranks + (np.arange(ranks, dtype=np.int64) < rows % ranks)
