"""Windows over MPI: shared memory if all ranks are on one node, and the library's one-sided transfers otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.messages.buffers import Array, Buffer
from armillary.comm.mpi.datatypes import OPS, reduces, spec
from armillary.comm.windows import Window, elements

if TYPE_CHECKING:
    from armillary.comm.mpi.ranks import MpiRanks


class MpiWindow(Window):
    """A window with one passive epoch, which lasts until `close`. `lock` is a flag that ranks set by compare-and-swap."""

    def __init__(self, comm: MpiRanks, nbytes: int, dtype: Any) -> None:
        count, kind = elements(nbytes, dtype)
        self._comm: MpiRanks = comm
        self._shared = comm.node_size == comm.size
        make = MPI.Win.Allocate_shared if self._shared else MPI.Win.Allocate
        self._win = make(max(nbytes, 1), kind.itemsize, comm=comm.native)
        self._flags = MPI.Win.Allocate(8, 8, comm=comm.native)
        self.local = _array(self._win.tomemory(), kind, count)
        self.local[...] = np.zeros((), kind)
        _array(self._flags.tomemory(), np.int64, 1)[0] = 0
        self._win.Lock_all()
        self._flags.Lock_all()
        self.fence()

    def put(self, data: Buffer, rank: int, start: int = 0) -> None:
        array = self._checked(data, rank, start)
        self._comm._count_message(rank, array.nbytes)
        self._win.Put(spec(array), rank, self._place(array, start))

    def get(self, data: Buffer, rank: int, start: int = 0) -> Buffer:
        array = self._checked(data, rank, start, writable=True)
        self._comm._count_message(rank, 0)
        self._win.Get(spec(array), rank, self._place(array, start))
        return data

    def accumulate(self, data: Buffer, rank: int, start: int = 0, op: Op = SUM) -> None:
        array = self._checked(data, rank, start)
        self._comm._count_message(rank, array.nbytes)
        if reduces(array, op):
            self._win.Accumulate(spec(array), rank, self._place(array, start), OPS[op.name])
            return
        with self.lock(rank):
            held = np.empty_like(array)
            self._win.Get(spec(held), rank, self._place(held, start))
            self._win.Flush(rank)
            held = np.ascontiguousarray(op(held, array))
            self._win.Put(spec(held), rank, self._place(held, start))
            self._win.Flush(rank)

    def flush(self, rank: int) -> None:
        self._win.Flush(rank)

    def fence(self) -> None:
        self._win.Flush_all()
        self._win.Sync()
        self._comm.native.Barrier()
        self._win.Sync()

    def lock(self, rank: int) -> AbstractContextManager[None]:
        self._check_rank(rank)
        return self._held(rank)

    @contextmanager
    def _held(self, rank: int) -> Iterator[None]:
        free, taken, seen = np.zeros(1, np.int64), np.ones(1, np.int64), np.ones(1, np.int64)
        while True:
            self._flags.Compare_and_swap(taken, free, seen, rank, 0)
            self._flags.Flush(rank)
            if seen[0] == 0:
                break
            time.sleep(0)
        self._win.Sync()
        try:
            yield
        finally:
            self._win.Flush(rank)
            self._flags.Accumulate(free, rank, (0, 1), MPI.REPLACE)
            self._flags.Flush(rank)

    def view(self, rank: int) -> Array | None:
        if not self._shared:
            return None
        memory, _ = self._win.Shared_query(rank)
        return _array(memory, self.local.dtype, self.local.size)

    def close(self) -> None:
        self.fence()
        self._win.Unlock_all()
        self._flags.Unlock_all()
        self.local = self.local.copy()
        self._win.Free()
        self._flags.Free()

    def _place(self, array: Array, start: int) -> tuple[int, int, Any]:
        return (start, array.size, spec(array)[2])


def _array(memory: Any, dtype: Any, count: int) -> Array:
    return np.frombuffer(memory, dtype, count)
