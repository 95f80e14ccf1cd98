"""SpGEMM writes permutations and selections as matrices and multiplies, B = P·A·Q, by sparse SUMMA, as CombBLAS does.

P has a one in row k, column p[k]. In stage s the ranks of grid column s broadcast their blocks of the left factor along grid rows, those of
grid row s their blocks of the right factor along grid columns, and every rank multiplies what it got; partial sums are added at the end.
Extraction takes selectors of |I| × m and n × |J|; assignment is A − SᵀS·A·R·Rᵀ + Sᵀ·B·Rᵀ. Blocks travel doubly compressed, and local
products are SciPy's.

Buluç and Gilbert: Parallel Sparse Matrix-Matrix Multiplication and Indexing, SIAM Journal on Scientific Computing 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.comm.collectives.exchanges import binomial_bcast

from .distribution.blocks import Blocks
from .distribution.dcsc import Array, index_type
from .distribution.index_vector import IndexVector, along, spread
from .rearranging.method import Method, Operation, square

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

    from armillary.comm.communicator import Communicator
    from armillary.comm.topology.process_grid import ProcessGrid


@dataclass(frozen=True, eq=False)
class Rows:
    """A matrix on a square grid of ranks, each with one block in compressed rows."""

    grid: ProcessGrid
    shape: tuple[int, int]
    block: csr_array

    @property
    def blocks(self) -> Blocks:
        """Which rows and columns are whose."""
        return Blocks(*self.shape, self.grid.rows, self.grid.columns)


@dataclass(frozen=True)
class Spgemm(Method):
    """Multiplies by permutation and selection matrices, by sparse SUMMA on a square grid."""

    def ranks(self, p: int) -> int:
        return square(p) ** 2

    def deal(self, matrix: csc_array, comm: Communicator) -> Rows:
        from .distribution.distributed import DistributedMatrix

        side = square(comm.size)
        dealt = DistributedMatrix.from_scipy(matrix, comm, (side, side))
        return Rows(dealt.grid, dealt.shape, dealt.local.tocsr())

    def apply(self, dealt: Rows, operation: Operation, batches: list[Any]) -> Rows:
        comm, dtype = dealt.grid.comm, dealt.block.dtype
        m, n = dealt.shape
        if operation.name != "assign":
            with comm.phase("identify"):
                left = None if operation.rows is None else selector(operation.rows, m, dealt.grid, dtype)
                right = None if operation.cols is None else selector(operation.cols, n, dealt.grid, dtype, transposed=True)
            found = dealt if left is None else product(left, dealt)
            return found if right is None else product(found, right)
        for (rows, cols, _), batch in zip(operation.batches, batches):
            with comm.phase("identify"):
                s, st = (selector(rows, m, dealt.grid, dtype, transposed=t) for t in (False, True))
                r, rt = (selector(cols, n, dealt.grid, dtype, transposed=t) for t in (True, False))
            inside = product(product(st, product(product(s, dealt), r)), rt)
            placed = product(product(st, Rows(dealt.grid, batch.shape, batch.block)), rt)
            with comm.phase("build"):
                # Values of A minus themselves are exactly zero; they are removed by place, because they must not be stored.
                kept = _without(dealt.block, inside.block)
                block = kept + placed.block
                block.sort_indices()
                _charge(comm, 0, dealt.block.nnz + inside.block.nnz + placed.block.nnz, block)
            dealt = Rows(dealt.grid, dealt.shape, block)
        return dealt

    def entries(self, dealt: Rows) -> int:
        return dealt.block.nnz

    def collect(self, dealt: Rows) -> csc_array | None:
        from .distribution.dcsc import Dcsc
        from .distribution.distributed import DistributedMatrix, canonical

        return DistributedMatrix(dealt.grid, dealt.shape, Dcsc.from_csc(canonical(dealt.block))).to_scipy(root=0)


def selector(indices: Array, n: int, grid: ProcessGrid, dtype: np.dtype[Any], transposed: bool = False) -> Rows:
    """Returns S with S[k, indices[k]] = 1, |indices| × n, or its transpose: each rank keeps the ones of its block."""
    from scipy.sparse import csr_array

    vector = IndexVector.deal(indices, grid.comm, n)
    shape = (n, vector.length) if transposed else (vector.length, n)
    blocks = Blocks(*shape, grid.rows, grid.columns)
    mine = spread(vector, blocks, 1 if transposed else 0, grid).astype(np.int64)
    span = blocks.rows(grid.i) if transposed else blocks.columns(grid.j)
    here = np.flatnonzero((mine >= span.start) & (mine < span.stop))
    places = (mine[here] - span.start, here) if transposed else (here, mine[here] - span.start)
    block = csr_array((np.ones(here.size, dtype), places), shape=blocks.local_shape(grid.i, grid.j))
    return Rows(grid, shape, block)


def product(left: Rows, right: Rows) -> Rows:
    """Multiplies by sparse SUMMA: √p stages of two broadcasts and a local product each, with sums at the end."""
    from scipy.sparse import csr_array

    grid = left.grid
    comm = grid.comm
    shape = (left.shape[0], right.shape[1])
    height, width = left.block.shape[0], right.block.shape[1]
    with comm.phase("exchange"):
        rows = along(grid.row, _sizes(left.block), [2] * grid.columns).reshape(-1, 2)
        cols = along(grid.col, _sizes(right.block), [2] * grid.rows).reshape(-1, 2)
    parts = []
    for stage in range(grid.rows):
        inner = len(left.blocks.columns(stage))
        if not rows[stage, 1] and not cols[stage, 1]:
            continue
        with comm.phase("exchange"):
            a = broadcast(grid.row, left.block, rows[stage], (height, inner), stage)
            b = broadcast(grid.col, right.block, cols[stage], (inner, width), stage)
        with comm.phase("build"):
            if a.nnz and b.nnz:
                part = a @ b
                _charge(comm, int(np.diff(b.indptr)[a.indices].sum()), a.nnz + b.nnz, part)
                parts.append(part)
    with comm.phase("build"):
        total = _sum(parts) if parts else csr_array((height, width), dtype=left.block.dtype)
    return Rows(grid, shape, total)


def _sum(parts: list[csr_array]) -> csr_array:
    """Adds the partial products to one, sorted."""
    from scipy.sparse import coo_array

    if len(parts) == 1:
        total = parts[0]
    else:
        rows = np.concatenate([np.repeat(np.arange(part.shape[0]), np.diff(part.indptr)) for part in parts])
        cols, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "data"))
        total = coo_array((values, (rows, cols)), shape=parts[0].shape).tocsr()
    total.sort_indices()
    return total


def _sizes(block: csr_array) -> Array:
    """Returns the numbers of nonempty rows and of entries."""
    return np.array([np.count_nonzero(np.diff(block.indptr)), block.nnz], np.int64)


def broadcast(lane: Communicator, mine: csr_array, sizes: Array, shape: tuple[int, int], root: int) -> csr_array:
    """Returns the root's block on every rank of a lane: nonempty rows, their ends, columns and values in one message; `sizes` are known.

    By messages, so that what each rank counts as sent is what it really sends.
    """
    from scipy.sparse import csr_array

    if lane.size == 1:
        return mine
    dtype = mine.dtype
    index = index_type(max(*shape, 1))
    rows, nnz = (int(size) for size in sizes)
    if lane.rank == root:
        full = np.flatnonzero(np.diff(mine.indptr))
        parts = (full.astype(index), mine.indptr[full + 1].astype(index), mine.indices.astype(index), mine.data)
        packed = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts])
    else:
        packed = np.empty(packed_bytes(rows, nnz, index, dtype), np.uint8)
    if rows:
        binomial_bcast(lane, packed, root)
    if lane.rank == root:
        return mine
    heads, columns = packed[: 2 * rows * index.itemsize].view(index), packed[2 * rows * index.itemsize :]
    counts = np.zeros(shape[0] + 1, index)
    counts[heads[:rows].astype(np.int64) + 1] = np.diff(heads[rows:], prepend=0)
    values = np.frombuffer(columns[nnz * index.itemsize :].tobytes(), dtype)
    return csr_array((values, columns[: nnz * index.itemsize].view(index), np.cumsum(counts, dtype=index)), shape=shape)


def packed_bytes(rows: int, nnz: int, index: np.dtype[Any], dtype: np.dtype[Any]) -> int:
    """Returns the bytes of a block that is sent."""
    return 2 * rows * index.itemsize + nnz * (index.itemsize + np.dtype(dtype).itemsize)


def _without(block: csr_array, inside: csr_array) -> csr_array:
    """Returns the entries of the block that have no entry of `inside` in their place."""
    from scipy.sparse import csr_array

    keys, dropped = (
        np.repeat(np.arange(one.shape[0]), np.diff(one.indptr)) * np.int64(max(1, one.shape[1])) + one.indices for one in (block, inside)
    )
    kept = ~np.isin(keys, dropped)
    counts = np.concatenate(([0], np.cumsum(kept)))[block.indptr]
    return csr_array((block.data[kept], block.indices[kept], counts), shape=block.shape)


def _charge(comm: Communicator, products: int, read: int, result: csr_array) -> None:
    """Charges Gustavson's two passes: both read a row's entries for every product, the second adds values; the result is written."""
    entry = result.indices.itemsize + result.dtype.itemsize
    comm.compute(flops=2.0 * products, bytes=float(products * (result.indices.itemsize + entry) + (read + 2 * result.nnz) * entry))
