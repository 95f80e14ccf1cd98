"""Memory that other ranks read and write: one-sided transfers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from armillary.comm.buffers import Array, Buffer, flat
from armillary.comm.operations import SUM, Op
from armillary.errors import InputError


class Window:
    """A piece of memory on every rank. `local` is this rank's; positions count elements.

    A `put`, `get` or `accumulate` is done at the next `flush` of that rank, or `fence` of all. `accumulate` is atomic for each element;
    `with window.lock(rank):` keeps other ranks' locks of that rank's memory out.
    """

    #: This rank's memory.
    local: Array

    def put(self, data: Buffer, rank: int, start: int = 0) -> None:
        """Write `data` into the memory of `rank`, from element `start`."""
        raise NotImplementedError

    def get(self, data: Buffer, rank: int, start: int = 0) -> Buffer:
        """Read from the memory of `rank` into `data`."""
        raise NotImplementedError

    def accumulate(self, data: Buffer, rank: int, start: int = 0, op: Op = SUM) -> None:
        """Combine the memory of `rank` with `data`."""
        raise NotImplementedError

    def flush(self, rank: int) -> None:
        """Return when this rank's transfers with `rank` are done."""
        raise NotImplementedError

    def fence(self) -> None:
        """Return when everybody's transfers are done; every rank calls it."""
        raise NotImplementedError

    def lock(self, rank: int) -> AbstractContextManager[None]:
        """Hold the memory of `rank` against other locks of it."""
        raise NotImplementedError

    def view(self, rank: int) -> Array | None:
        """The memory of `rank` itself where it is on the same node, else None."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the memory back; every rank calls it."""

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()

    def _checked(self, data: Any, rank: int, start: int, size: int, writable: bool = False) -> Array:
        array = flat(data, "data", writable=writable)
        if not 0 <= rank < size:
            raise InputError(f"window: found rank {rank}; expected 0 to {size - 1}")
        if array.dtype != self.local.dtype:
            raise InputError(f"window: found data of {array.dtype}; expected {self.local.dtype}")
        if start < 0 or start + array.size > self.local.size:
            raise InputError(f"window: found {array.size} elements from {start}; expected them inside {self.local.size}")
        return array


def elements(nbytes: int, dtype: Any) -> tuple[int, np.dtype[Any]]:
    """How many elements a window of `nbytes` has, and their type."""
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise InputError(f"window: found {kind}; expected numbers or bytes")
    if nbytes < 0 or nbytes % kind.itemsize:
        raise InputError(f"window: found {nbytes} bytes; expected a multiple of the {kind.itemsize} of {kind}")
    return nbytes // kind.itemsize, kind
