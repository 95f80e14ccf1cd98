"""Windows between threads, which share their memory anyway."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.messages.buffers import Array, Buffer
from armillary.comm.windows import Window

if TYPE_CHECKING:
    from armillary.comm.threads.ranks import ThreadRanks


class ThreadWindow(Window):
    """Memory of the process, with two locks for each rank's part: one for each transfer, one for `lock`."""

    def __init__(self, comm: ThreadRanks, local: Array, number: int) -> None:
        self._comm = comm
        self.local = local
        self._key = (comm._context, number)
        self._world = comm._world
        self._world.shared[(*self._key, comm.rank)] = (local, allocate_lock(), allocate_lock())
        comm._shadow.barrier()
        self._parts = [self._world.shared[(*self._key, rank)] for rank in range(comm.size)]

    def put(self, data: Buffer, rank: int, start: int = 0) -> None:
        array = self._checked(data, rank, start)
        self._comm._count_message(rank, array.nbytes)
        memory, atomic, _ = self._parts[rank]
        with atomic:
            memory[start : start + array.size] = array

    def get(self, data: Buffer, rank: int, start: int = 0) -> Buffer:
        array = self._checked(data, rank, start, writable=True)
        self._comm._count_message(rank, 0)
        memory, atomic, _ = self._parts[rank]
        with atomic:
            array[...] = memory[start : start + array.size]
        return data

    def accumulate(self, data: Buffer, rank: int, start: int = 0, op: Op = SUM) -> None:
        array = self._checked(data, rank, start)
        self._comm._count_message(rank, array.nbytes)
        memory, atomic, _ = self._parts[rank]
        part = memory[start : start + array.size]
        with atomic:
            part[...] = op(part, array)

    def flush(self, rank: int) -> None:
        self._world.check()

    def fence(self) -> None:
        self._comm._shadow.barrier()

    def lock(self, rank: int) -> AbstractContextManager[None]:
        self._check_rank(rank)
        return self._held(self._parts[rank][2])

    @contextmanager
    def _held(self, lock: Any) -> Iterator[None]:
        while not lock.acquire(timeout=0.1):
            self._world.check()
        try:
            yield
        finally:
            lock.release()

    def view(self, rank: int) -> Array | None:
        return self._parts[rank][0]

    def close(self) -> None:
        self.fence()
        self._world.shared.pop((*self._key, self._comm.rank), None)
