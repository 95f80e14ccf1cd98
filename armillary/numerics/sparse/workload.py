"""Makes matrices and operations on them: graphs with and without heavy rows, grids, and hypersparse matrices."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import unknown

from .distribution.dcsc import Array
from .rearranging.method import Operation

if TYPE_CHECKING:
    from scipy.sparse import csc_array

#: Graph500: probabilities of the quadrants, and edges for each node.
RMAT = (0.57, 0.19, 0.19, 0.05)
EDGE_FACTOR = 16
#: Assignments in a stream.
BATCHES = 20
MATRICES = ("rmat", "erdos-renyi", "poisson5", "poisson27", "hypersparse")
OPERATIONS = ("permute", "rows-and-columns", "rcm", "extract-random", "extract-contiguous", "assign", "stream")


@dataclass(frozen=True, eq=False)
class Work:
    """A matrix and an operation on it."""

    matrix: csc_array
    operation: Operation

    @functools.cached_property
    def expected(self) -> csc_array:
        """The result by SciPy's indexing."""
        from .scipy_one import indexed

        return indexed(self.matrix, self.operation)


def matrix(family: str, scale: int, rng: np.random.Generator) -> csc_array:
    """Returns a matrix of a family with about 2^scale rows: R-MAT, Erdős–Rényi with as many entries, Poisson on a grid, or hypersparse.

    `hypersparse` has 15·2^scale rows (10⁶ at scale 16) and a thousandth as many entries. Values are random; grids have the stencil's.
    """
    from scipy.sparse import coo_array, csc_array, diags_array, eye_array, kron

    n = 1 << scale
    if family == "poisson5":
        side = 1 << (scale // 2)
        line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
        return csc_array(kron(line, eye_array(side)) + kron(eye_array(side), line))
    if family == "poisson27":
        side = max(2, round(n ** (1 / 3)))
        line = diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(side, side))
        return csc_array(27.0 * eye_array(side**3) - kron(kron(line, line), line))
    if family == "rmat":
        rows, cols = rmat(scale, EDGE_FACTOR << scale, rng)
    elif family == "erdos-renyi":
        rows, cols = rng.integers(0, n, EDGE_FACTOR << scale), rng.integers(0, n, EDGE_FACTOR << scale)
    elif family == "hypersparse":
        n = 10**6 if scale == 16 else 15 << scale
        rows, cols = rng.integers(0, n, max(10, n // 1000)), rng.integers(0, n, max(10, n // 1000))
    else:
        raise unknown("matrix", family, MATRICES)
    _, once = np.unique(rows * np.int64(n) + cols, return_index=True)
    return coo_array((rng.random(once.size), (rows[once], cols[once])), shape=(n, n)).tocsc()


def rmat(scale: int, edges: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Returns edges of a recursive graph with 2^scale nodes: each level picks a quadrant. Chakrabarti, Zhan, Faloutsos, 2004."""
    rows, cols = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for _ in range(scale):
        quadrant = np.searchsorted(np.cumsum(RMAT)[:3], rng.random(edges), side="right")
        rows, cols = 2 * rows + (quadrant >> 1), 2 * cols + (quadrant & 1)
    return rows, cols


def operation(name: str, found: Any, rng: np.random.Generator, batches: int = BATCHES) -> Operation:
    """Returns what is done to the matrix: a random symmetric permutation, one for rows and one for columns, reverse Cuthill–McKee; a tenth
    of rows and columns, random or contiguous; an assignment of a hundredth of its entries to a random tenth, or a stream of such.
    """
    m, n = found.shape
    if name == "permute":
        p = rng.permutation(m)
        return Operation("permute", p, p)
    if name == "rows-and-columns":
        return Operation("permute", rng.permutation(m), rng.permutation(n))
    if name == "rcm":
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        p = reverse_cuthill_mckee(found.tocsr(), symmetric_mode=True).astype(np.int64)
        return Operation("permute", p, p)
    if name == "extract-random":
        return Operation("extract", rng.permutation(m)[: max(1, m // 10)], rng.permutation(n)[: max(1, n // 10)])
    if name == "extract-contiguous":
        rows, cols = max(1, m // 10), max(1, n // 10)
        top, left = int(rng.integers(0, m - rows + 1)), int(rng.integers(0, n - cols + 1))
        return Operation("extract", np.arange(top, top + rows), np.arange(left, left + cols))
    if name in ("assign", "stream"):
        return Operation("assign", batches=tuple(_batch(found, rng) for _ in range(1 if name == "assign" else batches)))
    raise unknown("operation", name, OPERATIONS)


def _batch(found: Any, rng: np.random.Generator) -> tuple[Array, Array, csc_array]:
    from scipy.sparse import coo_array

    m, n = found.shape
    rows, cols = rng.permutation(m)[: max(1, m // 10)], rng.permutation(n)[: max(1, n // 10)]
    count = max(1, found.nnz // 100)
    keys = np.unique(rng.integers(0, rows.size * cols.size, count))
    batch = coo_array((rng.random(keys.size), np.divmod(keys, cols.size)), shape=(rows.size, cols.size))
    return rows, cols, batch.astype(found.dtype).tocsc()
