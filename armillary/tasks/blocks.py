"""Arrays in shared memory, which the process that runs the graph makes once, its workers see without a copy, and the end of the run
removes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import weakref
from multiprocessing.shared_memory import SharedMemory
from typing import Any, TypeAlias

import numpy as np

from armillary.errors import InputError
from armillary.tasks.data import Data

#: What a worker needs to view an array: the name of the block, the shape and the data type.
Place: TypeAlias = tuple[str, tuple[int, ...], str]

_open: weakref.WeakSet[Blocks] = weakref.WeakSet()


class Blocks:
    """The shared memory of one run. `close` copies results back and unlinks everything; so does the end of the interpreter."""

    def __init__(self) -> None:
        self._blocks: dict[int, SharedMemory] = {}
        self.arrays: dict[int, np.ndarray] = {}
        self.places: dict[int, Place] = {}
        _open.add(self)

    def add(self, data: Data) -> None:
        """Moves the array of a handle into shared memory."""
        value = data.value
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            raise InputError(f"data {data.name}: found {type(value).__name__}; processes share NumPy arrays of plain numbers")
        name = f"armillary-{os.getpid()}-{secrets.token_hex(4)}"
        block = SharedMemory(name, create=True, size=max(1, value.nbytes))
        self._blocks[data.id] = block
        array: np.ndarray = np.ndarray(value.shape, value.dtype, buffer=block.buf)
        array[...] = value
        self.arrays[data.id] = array
        self.places[data.id] = (block.name, value.shape, value.dtype.str)

    def copy_back(self, handles: list[Data]) -> None:
        """Copies the results of the tasks back into the handles' own arrays."""
        for data in handles:
            if data.id in self.arrays:
                data.value[...] = self.arrays[data.id]

    def close(self) -> None:
        """Unlinks every block."""
        self.arrays.clear()
        for block in self._blocks.values():
            with contextlib.suppress(BufferError):
                block.close()
            with contextlib.suppress(FileNotFoundError):
                block.unlink()
        self._blocks.clear()


@atexit.register
def _close_all() -> None:
    for blocks in list(_open):
        blocks.close()


class Attached:
    """A worker's view of the blocks, each of which is attached once."""

    def __init__(self) -> None:
        self._blocks: dict[str, SharedMemory] = {}

    def array(self, place: Place) -> Any:
        """The array at a place."""
        name, shape, kind = place
        if name not in self._blocks:
            self._blocks[name] = SharedMemory(name)
        return np.ndarray(shape, np.dtype(kind), buffer=self._blocks[name].buf)
