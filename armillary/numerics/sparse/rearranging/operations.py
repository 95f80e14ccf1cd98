"""Permute, extract and assign identify where each entry goes, exchange once, and build.

A permutation moves every entry exactly once, so it is sent exactly once: each rank computes where its entries go, one all-to-all
moves them, and each rank builds its new block from what it received. Indices follow NumPy: permute gives B[i, j] = A[rows[i], cols[j]].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, unknown

from ..distribution.blocks import Blocks, process_grid
from ..distribution.dcsc import Array, Dcsc, index_type, triple_type
from ..distribution.distributed import DistributedMatrix
from ..distribution.exchange import MAX_MESSAGE_BYTES, build, exchange
from ..distribution.index_vector import IndexVector, agree, inverse, spread, wanted
from . import serial
from .kernels import count_merged, count_moved, count_wanted, fill_merged, pack_moved, pack_wanted
from .threaded import balanced, check_threads, each, private_offsets, worthwhile

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator
    from armillary.comm.topology.process_grid import ProcessGrid


@dataclass(frozen=True, eq=False)
class Moves:
    """Entries of one block with the new global place of each of its rows and columns, counted by destination.

    Local row i goes to row `row_local[i]` of grid row `row_part[i]`, columns alike. `histograms[t, d]`: entries of part t for rank d.
    """

    block: Dcsc
    row_part: Array
    row_local: Array
    col_part: Array
    col_local: Array
    target: Blocks
    borders: Array
    histograms: Array

    @classmethod
    def counted(cls, block: Dcsc, rowmap: Array, colmap: Array, target: Blocks, threads: int) -> Moves:
        """Does the first pass: each thread counts the destinations of its part; row i goes to row rowmap[i], column j to colmap[j]."""
        borders = balanced(block.cp, threads)
        histograms = np.zeros((threads, target.pr * target.pc), np.int64)
        rows, cols = _split(rowmap, target.mb), _split(colmap, target.nb)

        def work(t: int) -> None:
            count_moved(block.jc, block.cp, block.ir, borders[t], borders[t + 1], rows[0], cols[0], target.pc, histograms[t])

        each(work, threads, threads)
        return cls(block, *rows, *cols, target, borders, histograms)

    @property
    def counts(self) -> Array:
        """Entries for each rank."""
        return self.histograms.sum(axis=0)

    def packed(self) -> Array:
        """Does the second pass; returns the send buffer, by destination."""
        block, borders = self.block, self.borders
        triples = np.empty(block.nnz, triple_type(_index(self.target), block.num.dtype))
        offsets = private_offsets(self.histograms)
        places = (self.row_part, self.row_local, self.col_part, self.col_local, self.target.pc)

        def work(t: int) -> None:
            pack_moved(block.jc, block.cp, block.ir, block.bits, borders[t], borders[t + 1], *places, offsets[t], triples)

        each(work, len(offsets), len(offsets))
        return triples


def _split(places: Array, size: int) -> tuple[Array, Array]:
    """Returns the part that each global place is in, and where in it."""
    part = places // size
    return part.astype(np.int32), (places - part * size).astype(index_type(size), copy=False)


@dataclass(frozen=True, eq=False)
class PermutePlan:
    """A permutation that knows where every entry goes, before any has moved.

    `bytes_per_rank[r]`: bytes of entries that rank r will send to others; `entries_per_rank[r]`: its entries afterwards; `imbalance`: the
    most of these over their mean.
    """

    matrix: DistributedMatrix
    moves: Moves
    came: Array
    bytes_per_rank: Array
    entries_per_rank: Array
    max_message_bytes: int

    @property
    def imbalance(self) -> float:
        """The entries of the fullest rank afterwards over the mean, or 1 if there are none."""
        total = int(self.entries_per_rank.sum())
        return float(self.entries_per_rank.max() * self.entries_per_rank.size / total) if total else 1.0

    def apply(self) -> DistributedMatrix:
        """Moves the entries; all ranks call it."""
        return _moved(self.matrix.grid, self.matrix.shape, self.moves, self.came, self.max_message_bytes)


class Permute:
    """`permute(A, rows=p, cols=q)`; `permute.plan(A, p, q)` looks first."""

    def __call__(
        self, matrix: Any, rows: Any = None, cols: Any = None, *, threads: int = 1, max_message_bytes: int = MAX_MESSAGE_BYTES
    ) -> Any:
        """Returns B with B[i, j] = A[rows[i], cols[j]]; None leaves that side as it is.

        A `DistributedMatrix` gives one on the same ranks, and all of them call; each index vector is an `IndexVector`, or an array that
        every rank gives alike. A SciPy sparse matrix gives a SciPy sparse array of its format (CSC, else CSR), with sorted indices.
        `threads` work on each rank; the answer does not depend on them.
        """
        if not isinstance(matrix, DistributedMatrix):
            return serial.permute(matrix, rows, cols, check_threads(threads))
        moves, came = self._identify(matrix, rows, cols, threads)
        return _moved(matrix.grid, matrix.shape, moves, came, max_message_bytes)

    def plan(
        self, matrix: DistributedMatrix, rows: Any = None, cols: Any = None, *, threads: int = 1, max_message_bytes: int = MAX_MESSAGE_BYTES
    ) -> PermutePlan:
        """Returns what the permutation would send and leave on each rank; all ranks call it, and its `apply()` does the rest."""
        moves, came = self._identify(matrix, rows, cols, threads)
        comm, counts = matrix.comm, moves.counts
        width = triple_type(moves.block.ir.dtype, matrix.dtype).itemsize
        mine = np.array([(counts.sum() - counts[comm.rank]) * width, came.sum()], np.int64)
        both = comm.allgather(mine)
        return PermutePlan(matrix, moves, came, both[:, 0].copy(), both[:, 1].copy(), max_message_bytes)

    def _identify(self, matrix: DistributedMatrix, rows: Any, cols: Any, threads: int) -> tuple[Moves, Array]:
        comm, blocks = matrix.comm, matrix.blocks
        with comm.phase("identify"):
            vectors = [
                None if values is None else IndexVector.deal(values, comm, n, what)
                for values, n, what in zip((rows, cols), matrix.shape, ("rows", "cols"))
            ]
            rowmap, colmap = inverse(vectors, blocks, matrix.grid)
            moves = Moves.counted(matrix.block, rowmap, colmap, blocks, worthwhile(check_threads(threads), matrix.block.nnz))
            _charge_identify(comm, matrix.block)
            return moves, comm.alltoall(moves.counts)


permute = Permute()


def extract(matrix: Any, rows: Any, cols: Any, *, threads: int = 1, max_message_bytes: int = MAX_MESSAGE_BYTES) -> Any:
    """Returns C = A[rows][:, cols], |rows| × |cols|; indices may repeat, come in any order, or be none.

    A `DistributedMatrix` gives one on the same grid, a SciPy sparse matrix a SciPy sparse array of its format.
    """
    if not isinstance(matrix, DistributedMatrix):
        return serial.extract(matrix, rows, cols, check_threads(threads))
    comm, blocks, block, grid = matrix.comm, matrix.blocks, matrix.block, matrix.grid
    with comm.phase("identify"):
        one, two = _both(matrix, rows, cols)
        target = Blocks(one.length, two.length, grid.rows, grid.columns)
        row, col = wanted(one, blocks, 0, grid), wanted(two, blocks, 1, grid)
        table = row.table(block.shape[0])
        places, which = _columns(block.jc, col.keys)
        lengths = block.cp[places + 1] - block.cp[places]
        threads = worthwhile(check_threads(threads), int(lengths.sum()))
        borders = balanced(np.concatenate(([0], np.cumsum(lengths))), threads)
        histograms = np.zeros((threads, comm.size), np.int64)
        lists = (row.keys, table, row.ptr, row.pos, col.ptr, col.pos, target.mb, target.nb, target.pc)

        def count(t: int) -> None:
            count_wanted(block.cp, block.ir, places, which, borders[t], borders[t + 1], *lists, histograms[t])

        each(count, threads, threads)
        counts = histograms.sum(axis=0)
        came = comm.alltoall(counts)
        triples = np.empty(int(counts.sum()), triple_type(_index(target), matrix.dtype))
        offsets = private_offsets(histograms)

        def pack(t: int) -> None:
            pack_wanted(
                block.cp, block.ir, block.bits, places, which, borders[t], borders[t + 1], *lists, offsets[t], triples
            )  # fmt: skip

        each(pack, threads, threads)
        comm.compute(bytes=2.0 * lengths.sum() * block.ir.itemsize + 2.0 * triples.nbytes)
    return _exchanged(grid, (one.length, two.length), triples, counts, came, matrix.dtype, threads, max_message_bytes)


def assign(
    matrix: Any,
    rows: Any,
    cols: Any,
    values: Any,
    *,
    accumulate: str | None = None,
    threads: int = 1,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> Any:
    """Returns A with A[rows[k], cols[l]] = B[k, l]; what B does not store becomes zero. `accumulate="+"` adds B instead.

    B is |rows| × |cols| on the same grid (both SciPy, or both distributed). Indices may not repeat. B's values become A's type.
    """
    if accumulate not in (None, "+"):
        raise unknown("accumulate", str(accumulate), ["+"])
    if isinstance(matrix, DistributedMatrix) != isinstance(values, DistributedMatrix):
        raise InputError(f"assign: found {type(matrix).__name__} and {type(values).__name__}; expected both distributed or both SciPy's")
    if not isinstance(matrix, DistributedMatrix):
        serial.check_batch(rows, cols, values)
        return serial.assign(matrix, rows, cols, values, accumulate, check_threads(threads))
    comm, blocks, grid = matrix.comm, matrix.blocks, matrix.grid
    if (values.grid.rows, values.grid.columns) != (grid.rows, grid.columns) or values.comm.size != comm.size:
        raise InputError("assign: found a batch on another grid; expected it on the matrix's (repartition moves it)")
    if not np.can_cast(values.dtype, matrix.dtype, "same_kind"):
        raise InputError(f"assign: found values of {values.dtype}; expected {matrix.dtype} or what becomes it without loss of kind")
    with comm.phase("identify"):
        one, two = _both(matrix, rows, cols)
        if values.shape != (one.length, two.length):
            raise InputError(f"assign: found a batch of shape {values.shape}; expected {(one.length, two.length)}, one for each index")
        row, col = wanted(one, blocks, 0, grid, once="rows"), wanted(two, blocks, 1, grid, once="cols")
        batch = values.block
        if batch.num.dtype != matrix.dtype:
            batch = Dcsc(batch.shape, batch.jc, batch.cp, batch.ir, batch.num.astype(matrix.dtype))
        rowmap, colmap = spread(one, values.blocks, 0, grid), spread(two, values.blocks, 1, grid)
        threads = check_threads(threads)
        moves = Moves.counted(batch, rowmap, colmap, blocks, worthwhile(threads, batch.nnz))
        _charge_identify(comm, batch)
        counts, came = moves.counts, comm.alltoall(moves.counts)
        triples = moves.packed()
    with comm.phase("exchange"):
        received = exchange(comm, triples, counts, came, max_message_bytes)
    with comm.phase("build"):
        added = build(received, matrix.block.shape, matrix.dtype, threads)
        merged = merge(matrix.block, added, None if accumulate else row.keys, None if accumulate else col.keys)
        comm.compute(bytes=2.0 * (matrix.block.nbytes + added.nbytes + received.nbytes))
    return DistributedMatrix(grid, matrix.shape, merged)


def repartition(
    matrix: DistributedMatrix,
    comm: Communicator,
    grid: tuple[int, int] | ProcessGrid | None = None,
    *,
    threads: int = 1,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> DistributedMatrix:
    """Returns the same matrix on another grid of the same ranks: every entry moves once, to where it belongs there.

    `comm` holds the same processes as the matrix's, in any order.
    """
    if comm.size != matrix.comm.size:
        raise InputError(f"repartition: found {comm.size} ranks; expected the {matrix.comm.size} that have the matrix")
    made = process_grid(comm, grid)
    target = Blocks(*matrix.shape, made.rows, made.columns)
    with comm.phase("identify"):
        top, left = matrix.origin
        rowmap = np.arange(top, top + matrix.block.shape[0])
        colmap = np.arange(left, left + matrix.block.shape[1])
        moves = Moves.counted(matrix.block, rowmap, colmap, target, worthwhile(check_threads(threads), matrix.block.nnz))
        came = comm.alltoall(moves.counts)
    return _moved(made, matrix.shape, moves, came, max_message_bytes)


def merge(block: Dcsc, added: Dcsc, dropped_rows: Array | None, dropped_cols: Array | None) -> Dcsc:
    """Returns both blocks in one, entries of one place added; of `block` without those in a dropped row and a dropped column."""
    marked_rows, marked_cols = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
    if dropped_rows is not None and dropped_cols is not None and dropped_rows.size and dropped_cols.size:
        marked_rows, marked_cols = np.zeros(block.shape[0], np.bool_), np.zeros(block.shape[1], np.bool_)
        marked_rows[dropped_rows] = True
        marked_cols[dropped_cols] = True
    a, b = (block.jc, block.cp, block.ir), (added.jc, added.cp, added.ir)
    jc, counts = count_merged(*a, *b, marked_rows, marked_cols)
    cp = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    ir, num = np.empty(cp[-1], block.ir.dtype), np.empty(cp[-1], block.num.dtype)
    fill_merged(*a, block.num, *b, added.num, marked_rows, marked_cols, ir, num)
    return Dcsc(block.shape, jc, cp, ir, num)


def _both(matrix: DistributedMatrix, rows: Any, cols: Any) -> tuple[IndexVector, IndexVector]:
    """Returns two index vectors whose numbers are rows and columns of the matrix."""
    m, n = matrix.shape
    one, two = IndexVector.deal(rows, matrix.comm, m, "rows"), IndexVector.deal(cols, matrix.comm, n, "cols")
    agree(matrix.comm, one.outside(m, "rows") or two.outside(n, "cols"))
    return one, two


def _columns(jc: Array, keys: Array) -> tuple[Array, Array]:
    """Returns the nonempty columns that are asked for: their places in jc and in keys.

    Only requested ones are walked where these are few.
    """
    if keys.size * 4 < jc.size:
        at = np.searchsorted(jc, keys)
        found = np.flatnonzero(jc[np.minimum(at, max(jc.size - 1, 0))] == keys) if jc.size else np.empty(0, np.int64)
        return at[found], found
    at = np.searchsorted(keys, jc)
    found = np.flatnonzero(keys[np.minimum(at, keys.size - 1)] == jc) if keys.size else np.empty(0, np.int64)
    return found, at[found]


def _moved(grid: ProcessGrid, shape: tuple[int, int], moves: Moves, came: Array, max_message_bytes: int) -> DistributedMatrix:
    with grid.comm.phase("identify"):
        triples = moves.packed()
    threads = len(moves.histograms)
    return _exchanged(grid, shape, triples, moves.counts, came, moves.block.num.dtype, threads, max_message_bytes)


def _exchanged(
    grid: ProcessGrid,
    shape: tuple[int, int],
    triples: Array,
    counts: Array,
    came: Array,
    dtype: np.dtype[Any],
    threads: int,
    max_message_bytes: int,
) -> DistributedMatrix:
    comm = grid.comm
    with comm.phase("exchange"):
        received = exchange(comm, triples, counts, came, max_message_bytes)
    del triples
    with comm.phase("build"):
        block = build(received, Blocks(*shape, grid.rows, grid.columns).local_shape(grid.i, grid.j), dtype, threads)
        # Received triples are read twice and written once by ranges of columns, then read twice and written once sorted.
        comm.compute(bytes=6.0 * received.nbytes)
    return DistributedMatrix(grid, shape, block)


def _charge_identify(comm: Communicator, block: Dcsc) -> None:
    """Charges two passes that read rows and their new places, of which the second also reads values and writes triples."""
    per_entry = 2 * 2 * block.ir.itemsize + block.num.itemsize + triple_type(block.ir.dtype, block.num.dtype).itemsize
    comm.compute(bytes=float(per_entry) * block.nnz)


def _index(blocks: Blocks) -> np.dtype[Any]:
    return index_type(max(blocks.mb, blocks.nb))
