"""Windows: memory that other ranks read and write by one-sided transfers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.messages.buffers import Array, Buffer, flat
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator


class Window:
    """A piece of memory on every rank. `local` is this rank's own memory; positions count elements.

    A `put`, `get` or `accumulate` is complete after the next `flush` of that rank or the next `fence`. `accumulate` is atomic for each
    element. `with window.lock(rank):` keeps other ranks from locking the memory of that rank.
    """

    #: This rank's memory.
    local: Array
    _comm: Communicator

    def put(self, data: Buffer, rank: int, start: int = 0) -> None:
        """Write `data` into the memory of `rank`, from element `start`."""
        raise NotImplementedError

    def get(self, data: Buffer, rank: int, start: int = 0) -> Buffer:
        """Read from the memory of `rank`, from element `start`, into `data`."""
        raise NotImplementedError

    def accumulate(self, data: Buffer, rank: int, start: int = 0, op: Op = SUM) -> None:
        """Combine the memory of `rank`, from element `start`, with `data`."""
        raise NotImplementedError

    def flush(self, rank: int) -> None:
        """Return when this rank's transfers to and from `rank` are complete."""
        raise NotImplementedError

    def fence(self) -> None:
        """Return when the transfers of all ranks are complete. Every rank calls it."""
        raise NotImplementedError

    def lock(self, rank: int) -> AbstractContextManager[None]:
        """Return a context manager that holds the lock of the memory of `rank`."""
        raise NotImplementedError

    def view(self, rank: int) -> Array | None:
        """Return the memory of `rank` itself if it is on the same node, else None."""
        raise NotImplementedError

    def close(self) -> None:
        """Free the memory. Every rank calls it."""

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self._comm.size:
            raise InputError(f"window: found rank {rank}; expected 0 to {self._comm.size - 1}")

    def _checked(self, data: Any, rank: int, start: int, writable: bool = False) -> Array:
        """Check a transfer between `data` and the memory of `rank`, and return `data` as a one-dimensional array."""
        array = flat(data, "data", writable=writable)
        self._check_rank(rank)
        if array.dtype != self.local.dtype:
            raise InputError(f"window: found data of {array.dtype}; expected {self.local.dtype}")
        if start < 0 or start + array.size > self.local.size:
            raise InputError(f"window: found {array.size} elements from {start}; expected them inside {self.local.size}")
        return array


def elements(nbytes: int, dtype: Any) -> tuple[int, np.dtype[Any]]:
    """Return the number of elements of a window of `nbytes` bytes, and their type."""
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise InputError(f"window: found {kind}; expected numbers or bytes")
    if nbytes < 0 or nbytes % kind.itemsize:
        raise InputError(f"window: found {nbytes} bytes; expected a multiple of the {kind.itemsize} of {kind}")
    return nbytes // kind.itemsize, kind
