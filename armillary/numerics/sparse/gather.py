"""Gather sends everything to one rank, uses SciPy's indexing there, and sends the blocks back.

A program that has no distributed operation does this; it is simple, and as slow and as large as one rank. Message Passing Interface Forum:
MPI, A Message-Passing Interface Standard, 1994 (gather and scatter).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .distribution.blocks import Blocks
from .distribution.dcsc import Array, index_type, triple_type
from .distribution.exchange import build, pack_triples
from .rearranging.kernels import group
from .rearranging.method import Method, Operation
from .scipy_one import indexed, indexing_bytes

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from armillary.comm.communicator import Communicator

    from .distribution.distributed import DistributedMatrix


@dataclass(frozen=True)
class Gather(Method):
    """Sends all entries to rank 0, uses SciPy there, and sends them back."""

    def deal(self, matrix: csc_array, comm: Communicator) -> DistributedMatrix:
        from .distribution.distributed import DistributedMatrix

        return DistributedMatrix.from_scipy(matrix, comm)

    def apply(self, dealt: DistributedMatrix, operation: Operation, batches: list[Any]) -> DistributedMatrix:
        comm = dealt.comm
        with comm.phase("exchange"):
            whole = _whole(dealt)
            others = [_whole(batch) for batch in batches]
        result = None
        with comm.phase("build"):
            if whole is not None:
                steps = [(rows, cols, other) for (rows, cols, _), other in zip(operation.batches, others) if other is not None]
                result = indexed(whole, Operation(operation.name, operation.rows, operation.cols, tuple(steps)))
                comm.compute(bytes=indexing_bytes(whole, result))
        with comm.phase("exchange"):
            return _dealt(result, dealt)

    def entries(self, dealt: DistributedMatrix) -> int:
        return dealt.block.nnz

    def collect(self, dealt: DistributedMatrix) -> csc_array | None:
        return dealt.to_scipy(root=0)


def _whole(dealt: DistributedMatrix) -> csc_array | None:
    """Collects the matrix at rank 0, as packed triples with global indices in one gather."""
    from scipy.sparse import coo_array

    comm = dealt.comm
    rows, cols, values = dealt.triples()
    index = index_type(max(dealt.shape))
    triples = pack_triples(rows, cols, values, index)
    counts = comm.gather(np.array([triples.nbytes], np.int64))
    if comm.rank:
        comm.gatherv(triples.view(np.uint8), counts=[0] * comm.size)
        return None
    sizes = counts.reshape(-1)
    room = np.empty(int(sizes.sum()), np.uint8)
    comm.gatherv(triples.view(np.uint8), room, sizes)
    got = room.view(triple_type(index, dealt.dtype))
    values = np.ascontiguousarray(got["v"]).view(dealt.dtype)
    return coo_array((values, (got["i"], got["j"])), shape=dealt.shape).tocsc()


def _dealt(result: csc_array | None, like: DistributedMatrix) -> DistributedMatrix:
    """Sends the blocks of rank 0's matrix to their owners in one scatter."""
    from .distribution.distributed import DistributedMatrix

    comm, grid = like.comm, like.grid
    facts = np.zeros(2, np.int64)
    if result is not None:
        facts[:] = result.shape
    comm.bcast(facts)
    shape = (int(facts[0]), int(facts[1]))
    blocks = Blocks(*shape, grid.rows, grid.columns)
    index = index_type(max(blocks.mb, blocks.nb))
    width = triple_type(index, like.dtype).itemsize
    mine = np.zeros(1, np.int64)
    if result is None:
        comm.scatter(None, mine)
        room: Array = np.empty(int(mine[0]), np.uint8)
        comm.scatterv(None, None, room)
    else:
        coo = result.tocoo()
        rows, cols = coo.coords
        r, c = rows // blocks.mb, cols // blocks.nb
        counts, order = group((r * blocks.pc + c).astype(np.int64), comm.size)
        triples = pack_triples((rows - r * blocks.mb)[order], (cols - c * blocks.nb)[order], coo.data[order], index)
        comm.scatter(counts * width, mine)
        room = np.empty(int(mine[0]), np.uint8)
        comm.scatterv(triples.view(np.uint8), counts * width, room)
    received = room.view(triple_type(index, like.dtype))
    return DistributedMatrix(grid, shape, build(received, blocks.local_shape(grid.i, grid.j), like.dtype))
