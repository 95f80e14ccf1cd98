"""A sparse matrix dealt on a process grid, each rank with one doubly compressed block."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

from ..rearranging.kernels import group
from .blocks import Blocks, process_grid
from .dcsc import Array, Dcsc, index_type
from .exchange import MAX_MESSAGE_BYTES, build, exchange, pack_triples
from .index_vector import agree

if TYPE_CHECKING:
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import LinearOperator

    from armillary.comm.communicator import Communicator
    from armillary.comm.topology.process_grid import ProcessGrid


@dataclass(frozen=True, eq=False)
class DistributedMatrix:
    """An m × n sparse matrix on pr × pc ranks: rank (r, c) owns rows [r·⌈m/pr⌉, …) and columns [c·⌈n/pc⌉, …) as a `Dcsc` block.

    Made by `from_scipy`, `read` or `from_triples`, by all ranks together, and never changed.
    """

    grid: ProcessGrid
    shape: tuple[int, int]
    block: Dcsc

    @property
    def comm(self) -> Communicator:
        """The ranks that own it."""
        return self.grid.comm

    @property
    def blocks(self) -> Blocks:
        """The owners of rows and columns."""
        return Blocks(*self.shape, self.grid.rows, self.grid.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return self.block.num.dtype

    @property
    def local(self) -> csc_array:
        """This rank's block, with local indices."""
        return self.block.to_csc()

    @property
    def origin(self) -> tuple[int, int]:
        """The global row and column of the block's first."""
        return self.blocks.rows(self.grid.i).start, self.blocks.columns(self.grid.j).start

    @property
    def nnz(self) -> int:
        """The number of stored entries of the whole matrix; all ranks call it."""
        return int(self.comm.allreduce(np.array([self.block.nnz], np.int64))[0])

    @classmethod
    def from_scipy(
        cls, matrix: Any, comm: Communicator, grid: tuple[int, int] | ProcessGrid | None = None, root: int | None = None
    ) -> DistributedMatrix:
        """Deals a SciPy sparse matrix. Every rank gives the same one and keeps its block; with `root`, that rank alone gives it.

        Repeated entries are added up.
        """
        made = process_grid(comm, grid)
        if root is None:
            csc = canonical(matrix)
            blocks = Blocks(*csc.shape, made.rows, made.columns)
            mine, wide = blocks.rows(made.i), blocks.columns(made.j)
            part = csc[:, wide.start : wide.stop][mine.start : mine.stop] if comm.size > 1 else csc
            return cls(made, csc.shape, Dcsc.from_csc(canonical(part)))
        coo = canonical(matrix).tocoo() if comm.rank == root else None
        facts = np.zeros(3, np.int64)
        if coo is not None:
            facts[:] = *coo.shape, np.dtype(coo.dtype).num
        comm.bcast(facts, root)
        none = np.empty(0, np.int64)
        rows, cols = (none, none) if coo is None else coo.coords
        values = np.empty(0, _numbered(int(facts[2]))) if coo is None else coo.data
        return cls.from_triples(rows, cols, values, (int(facts[0]), int(facts[1])), comm, made)

    @classmethod
    def from_triples(
        cls,
        rows: Array,
        cols: Array,
        values: Array,
        shape: tuple[int, int],
        comm: Communicator,
        grid: tuple[int, int] | ProcessGrid | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        threads: int = 1,
    ) -> DistributedMatrix:
        """Returns the matrix of entries (global row, column, value) on any ranks; those of one place are added up in the order of ranks."""
        made = process_grid(comm, grid)
        blocks = Blocks(*shape, made.rows, made.columns)
        r, c = rows // blocks.mb, cols // blocks.nb
        counts, order = group((r * blocks.pc + c).astype(np.int64), comm.size)
        index = index_type(max(blocks.mb, blocks.nb))
        triples = pack_triples((rows - r * blocks.mb)[order], (cols - c * blocks.nb)[order], np.ascontiguousarray(values)[order], index)
        received = exchange(comm, triples, counts, comm.alltoall(counts), max_message_bytes)
        return cls(made, shape, build(received, blocks.local_shape(made.i, made.j), values.dtype, threads, add=True))

    @classmethod
    def read(cls, path: str | os.PathLike[str], comm: Communicator, grid: tuple[int, int] | ProcessGrid | None = None) -> DistributedMatrix:
        """Reads a matrix: Matrix Market, a SNAP edge list (`.txt`), `.npz` or `.npy`. Each rank parses its range of bytes of a text."""
        from ..readers.shares import read_share

        fault, share = None, None
        try:
            share = read_share(path, comm.rank, comm.size)
        except InputError as error:
            fault = str(error)
        agree(comm, fault)
        assert share is not None
        shape = share.agreed_shape(comm)
        return cls.from_triples(share.rows, share.cols, share.values, shape, comm, grid)

    def triples(self) -> tuple[Array, Array, Array]:
        """Returns global rows, global columns and values of this rank's entries."""
        top, left = self.origin
        return self.block.ir.astype(np.int64) + top, self.block.columns.astype(np.int64) + left, self.block.num

    def to_scipy(self, root: int | None = 0) -> csc_array | None:
        """Returns the whole matrix at the root and None elsewhere; with `root=None` on every rank. Sorted indices."""
        from scipy.sparse import coo_array

        parts: list[Any] = []
        for part in self.triples():
            bits = np.ascontiguousarray(part).view(np.uint8)
            got = self.comm.allgatherv(bits) if root is None else self.comm.gatherv(bits, root=root)
            parts.append(None if got is None else got.view(part.dtype))
        if parts[0] is None:
            return None
        rows, cols, values = parts
        index = index_type(max(self.shape))
        found = coo_array((values, (rows.astype(index), cols.astype(index))), shape=self.shape).tocsc()
        found.sort_indices()
        return found

    def as_linear_operator(self) -> LinearOperator:
        """Returns the matrix as SciPy's iterative solvers take it: vectors are whole on every rank, and every rank calls alike.

        Each rank multiplies its block; the parts are added along grid rows in the order of ranks and gathered along grid columns, so every
        rank has the same bits and the same solver takes the same steps everywhere.
        """
        from scipy.sparse.linalg import LinearOperator

        block, blocks, grid = self.local, self.blocks, self.grid
        rows, cols = blocks.rows(grid.i), blocks.columns(grid.j)

        def times(x: Array) -> Array:
            part = grid.row.allreduce(np.ascontiguousarray(block @ x[cols.start : cols.stop]), order="rank")
            return grid.col.allgatherv(part).reshape(-1, *x.shape[1:])

        def transposed(x: Array) -> Array:
            part = grid.col.allreduce(np.ascontiguousarray(block.conj().T @ x[rows.start : rows.stop]), order="rank")
            return grid.row.allgatherv(part).reshape(-1, *x.shape[1:])

        return LinearOperator(self.shape, matvec=times, rmatvec=transposed, matmat=times, rmatmat=transposed, dtype=self.dtype)


def canonical(matrix: Any) -> csc_array:
    """Returns a SciPy sparse matrix as a `csc_array` with sorted indices and no repeated entries; the given one stays as it is."""
    from scipy.sparse import csc_array, issparse

    if not issparse(matrix) or len(getattr(matrix, "shape", ())) != 2:
        raise InputError(f"matrix: found {type(matrix).__name__}; expected a two-dimensional sparse array of SciPy")
    given: Any = matrix
    found = csc_array(given)
    if not found.has_canonical_format:
        found = found.copy() if found.indices is getattr(matrix, "indices", None) else found
        found.sum_duplicates()
    return found


def imbalance(matrix: DistributedMatrix) -> float:
    """Returns the entries of the fullest rank over the mean, or 1 if there are none. All ranks call it."""
    counts = matrix.comm.allgather(np.array([matrix.block.nnz], np.int64)).reshape(-1)
    total = int(counts.sum())
    return float(counts.max() * counts.size / total) if total else 1.0


def _numbered(number: int) -> np.dtype[Any]:
    """Returns the type that NumPy gives this number."""
    return next(np.dtype(code) for code in np.typecodes["All"] if np.dtype(code).num == number)
