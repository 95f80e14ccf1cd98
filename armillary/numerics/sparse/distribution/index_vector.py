"""Index vectors dealt over all ranks, and how a rank learns which of them concern its rows and columns. No rank ever holds a whole one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.comm.collectives.exchanges import bruck_allgather
from armillary.comm.collectives.operations import MAX, MIN
from armillary.errors import InputError
from armillary.memory import too_much

from ..rearranging.kernels import group
from .blocks import Blocks
from .dcsc import Array, index_type

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator
    from armillary.comm.topology.process_grid import ProcessGrid


#: How many times its own bytes an index vector takes while it is sent to those whom it concerns.
PASSES = 6


def agree(comm: Communicator, fault: str | None) -> None:
    """Raises the fault of the first rank that has one on every rank, so that a bad input ends all of them alike."""
    first = int(comm.allreduce(np.array([comm.size if fault is None else comm.rank], np.int64), op=MIN)[0])
    if first == comm.size:
        return
    said = np.frombuffer((fault or "").encode(), np.uint8).copy()
    length = comm.bcast(np.array([said.size], np.int64), first)
    text = comm.bcast(said if comm.rank == first else np.empty(int(length[0]), np.uint8), first)
    raise InputError(text.tobytes().decode())


@dataclass(frozen=True, eq=False)
class IndexVector:
    """Whole numbers in contiguous chunks of ⌈length/p⌉ over the ranks of `comm`; `chunk` is this rank's, int64."""

    comm: Communicator
    length: int
    chunk: Array

    @property
    def start(self) -> int:
        """The position of the first number of the chunk."""
        return self.comm.local_range(self.length).start

    @classmethod
    def deal(cls, values: Any, comm: Communicator, n: int, what: str = "indices") -> IndexVector:
        """Returns this rank's chunk of a vector that every rank gives: an array of whole numbers, or a slice or range of 0 … n − 1."""
        if isinstance(values, IndexVector):
            if values.comm.size != comm.size or values.comm.rank != comm.rank:
                raise InputError(f"{what}: found an index vector of other ranks; expected one of the matrix's")
            return values
        if isinstance(values, slice):
            values = range(*values.indices(n))
        if isinstance(values, range):
            mine = comm.local_range(len(values))
            # A vector, the pairs that are sent and received for it, and their order.
            agree(comm, too_much(PASSES * 8 * len(mine) * comm.size, f"{what}: a vector of {len(values):,} positions"))
            return cls(comm, len(values), np.arange(mine.start, mine.stop, dtype=np.int64) * values.step + values.start)
        array = whole_numbers(values, what)
        mine = comm.local_range(array.size)
        return cls(comm, array.size, array[mine.start : mine.stop].astype(np.int64))

    @classmethod
    def from_chunks(cls, chunk: Any, comm: Communicator, what: str = "indices") -> IndexVector:
        """Returns the vector of which each rank has its own chunk already; all but the last ranks have ⌈length/p⌉ numbers."""
        array = whole_numbers(chunk, what).astype(np.int64)
        length = int(comm.allreduce(np.array([array.size], np.int64))[0])
        mine = comm.local_range(length)
        wrong = array.size != len(mine)
        agree(comm, f"{what}: found {array.size} on rank {comm.rank}; expected {len(mine)} of {length}" if wrong else None)
        return cls(comm, length, array)

    def outside(self, n: int, what: str) -> str | None:
        """Returns what is wrong with the first number of this rank's chunk that is not below n; None where all are."""
        bad = np.flatnonzero((self.chunk < 0) | (self.chunk >= n))
        if not bad.size:
            return None
        expected = f"0 to {n - 1}" if n else "none"
        return f"{what}: found index {self.chunk[bad[0]]} at position {self.start + bad[0]}; expected {expected}"


def whole_numbers(values: Any, what: str) -> Array:
    """Returns a one-dimensional array of whole numbers."""
    array = np.asarray(values)
    if array.ndim == 1 and array.size == 0:
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{what}: found {array.ndim} dimensions of {array.dtype}; expected one, of whole numbers")
    if array.dtype == np.uint64 and int(array.max()) >= 2**63:
        raise InputError(f"{what}: found index {array.max()}; expected at most {2**63 - 1}")
    return array


def send_grouped(comm: Communicator, items: Array, destinations: Array) -> Array:
    """Sends each item (a row of `items`) to its destination; returns what came, by sender, each sender's in its order."""
    counts, order = group(destinations, comm.size)
    came = comm.alltoall(counts)
    width = items.itemsize * int(np.prod(items.shape[1:], dtype=np.int64))
    ordered = np.ascontiguousarray(items[order])
    received = np.empty((int(came.sum()), *items.shape[1:]), items.dtype)
    comm.alltoallv(_bytes(ordered), counts * width, _bytes(received), came * width)
    return received


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def along(comm: Communicator, mine: Array, lengths: Sequence[int] | None = None) -> Array:
    """Returns the arrays of all ranks side by side, by messages, so that each rank counts what it really sends."""
    if comm.size == 1:
        return mine
    if lengths is None:
        asked = np.empty(comm.size, np.int64)
        bruck_allgather(comm, np.array([mine.size], np.int64), list(asked.reshape(-1, 1)))
        lengths = asked.tolist()
    whole = np.empty(sum(lengths), mine.dtype)
    bruck_allgather(comm, mine, np.split(whole, np.cumsum(lengths)[:-1]))
    return whole


def _pieces(blocks: Blocks, grid: ProcessGrid, axis: int) -> list[int]:
    """Returns how many rows or columns each rank of this rank's lane answers for."""
    places = [(grid.i, c) for c in range(blocks.pc)] if axis == 0 else [(r, grid.j) for r in range(blocks.pr)]
    return [len(blocks.answered(r, c, axis)) for r, c in places]


def lane(grid: ProcessGrid, axis: int) -> Communicator:
    """Returns the ranks that need the same rows (axis 0: a grid row) or columns (axis 1: a grid column)."""
    return grid.row if axis == 0 else grid.col


def _asked(vector: IndexVector, blocks: Blocks, axis: int, n: int) -> Array:
    """Sends pairs (index, position) to the rank that answers for the index, by position."""
    wire = index_type(max(n, vector.length))
    pairs = np.empty((vector.chunk.size, 2), wire)
    pairs[:, 0] = vector.chunk
    pairs[:, 1] = np.arange(vector.start, vector.start + vector.chunk.size)
    return send_grouped(vector.comm, pairs, blocks.answering(vector.chunk, axis))


def inverse(vectors: Sequence[IndexVector | None], blocks: Blocks, grid: ProcessGrid) -> list[Array]:
    """Returns the new global place of each of this rank's rows and columns, when row i is wanted where vector[k] = i.

    None is the identity. What is no permutation is found by the rank that answers for an index that comes twice or never.
    """
    comm = grid.comm
    sizes, names = (blocks.m, blocks.n), ("rows", "cols")
    fault = None
    for vector, n, what in zip(vectors, sizes, names):
        if vector is not None:
            if vector.length != n:
                raise InputError(f"{what}: found {vector.length} indices; expected a permutation of {n}")
            fault = fault or vector.outside(n, what)
    agree(comm, fault)
    places: list[Array] = []
    for axis, (vector, n, what) in enumerate(zip(vectors, sizes, names)):
        mine = blocks.answered(grid.i, grid.j, axis)
        if vector is None:
            whole = blocks.rows(grid.i) if axis == 0 else blocks.columns(grid.j)
            places.append(np.arange(whole.start, whole.stop, dtype=index_type(n)))
            continue
        pairs = _asked(vector, blocks, axis, n)
        here = np.full(len(mine), -1, pairs.dtype)
        here[pairs[:, 0] - mine.start] = pairs[:, 1]
        fault = fault or _not_once(pairs, here, mine, what)
        places.append(here)
    if any(vector is not None for vector in vectors):
        agree(comm, fault)
    return [
        here if vector is None else along(lane(grid, axis), here, _pieces(blocks, grid, axis))
        for axis, (here, vector) in enumerate(zip(places, vectors))
    ]


def _not_once(pairs: Array, here: Array, mine: range, what: str) -> str | None:
    twice = np.flatnonzero(here[pairs[:, 0] - mine.start] != pairs[:, 1])
    if twice.size:
        index, position = (int(x) for x in pairs[twice[0]])
        return f"{what}: found index {index} at positions {position} and {here[index - mine.start]}; expected each index once"
    never = np.flatnonzero(here < 0)
    return f"{what}: index {mine.start + never[0]} is missing; expected each index once" if never.size else None


@dataclass(frozen=True, eq=False)
class Wanted:
    """Which of this rank's rows (or columns) are asked for: local `keys` ascending, the positions of key u are pos[ptr[u]:ptr[u+1]]."""

    keys: Array
    ptr: Array
    pos: Array

    def table(self, length: int) -> Array:
        """Says which key each local row is, −1 for none: where a key is asked for at least every eighth row. Empty otherwise: bisect."""
        if self.pos.size * 8 < length:
            return np.empty(0, np.int32)
        found = np.full(length, -1, np.int32)
        found[self.keys] = np.arange(self.keys.size, dtype=np.int32)
        return found


def wanted(vector: IndexVector, blocks: Blocks, axis: int, grid: ProcessGrid, *, once: str = "") -> Wanted:
    """Returns who asks for this rank's rows or columns. With `once`, the vector's name, a repeated index is refused."""
    n = blocks.m if axis == 0 else blocks.n
    pairs = _asked(vector, blocks, axis, n)
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    if once:
        twice = np.flatnonzero(pairs[1:, 0] == pairs[:-1, 0])
        fault = None
        if twice.size:
            (index, first), second = (int(x) for x in pairs[twice[0]]), int(pairs[twice[0] + 1, 1])
            fault = f"{once}: found index {index} at positions {first} and {second}; expected each index at most once"
        agree(grid.comm, fault)
    whole = along(lane(grid, axis), pairs.reshape(-1)).reshape(-1, 2)
    start = (blocks.rows(grid.i) if axis == 0 else blocks.columns(grid.j)).start
    keys, firsts = np.unique(whole[:, 0], return_index=True)
    ptr = np.append(firsts, len(whole)).astype(np.int64)
    return Wanted((keys - start).astype(whole.dtype), ptr, np.ascontiguousarray(whole[:, 1]))


def spread(vector: IndexVector, blocks: Blocks, axis: int, grid: ProcessGrid) -> Array:
    """Returns the numbers of the vector at the positions of this rank's rows or columns: a piece of it on every rank of a grid row or
    column.
    """
    positions = np.arange(vector.start, vector.start + vector.chunk.size)
    most = int(vector.comm.allreduce(np.array([vector.chunk.max(initial=0)], np.int64), op=MAX)[0])
    piece = send_grouped(vector.comm, vector.chunk.astype(index_type(most + 1)), blocks.answering(positions, axis))
    return along(lane(grid, axis), piece, _pieces(blocks, grid, axis))
