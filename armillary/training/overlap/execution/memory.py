"""The memory of all ranks as every rank sees it: layouts, flags, and locks that make adds atomic.

Each rank has one block, of shared memory between processes or of ordinary memory between threads. A flag is an int32; adding to it, or to
rows of a layout, holds the lock of its stripe, which gives the add release semantics and the reader that takes the lock acquire semantics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.training.overlap.programs.template import TileProgram

#: Rows of a layout under one lock, and locks in all.
ROWS, STRIPES = 32, 64
#: The most bytes of all ranks together.
MOST_BYTES = 4 << 30


class Memory:
    """Views of every rank's layouts (`arrays[rank][name]`) and flags (`flags[rank][bar]`), over one buffer per rank."""

    def __init__(self, program: TileProgram, buffers: list[Any], locks: list[Any]) -> None:
        self.locks = locks
        self.arrays: list[dict[str, npt.NDArray[Any]]] = []
        self.flags: list[dict[str, npt.NDArray[np.int32]]] = []
        for buffer in buffers:
            at, arrays, flags = 64, {}, {}
            for name, layout in program.layouts().items():
                count = int(np.prod(layout.shape))
                arrays[name] = np.frombuffer(buffer, layout.dtype, count, at).reshape(layout.shape)
                at = _aligned(at + count * arrays[name].itemsize)
            for name, number in program.bars().items():
                flags[name] = np.frombuffer(buffer, np.int32, number, at)
                at = _aligned(at + 4 * number)
            self.arrays.append(arrays)
            self.flags.append(flags)
        #: Set when some rank has failed, so that the others stop waiting.
        self.stopped = np.frombuffer(buffers[0], np.int32, 1, 0)

    def release(self) -> None:
        """Lets go of all views, so that shared memory can be closed."""
        self.arrays.clear()
        self.flags.clear()
        self.stopped = np.zeros(1, np.int32)

    def add_flag(self, rank: int, bar: str, coord: int, value: int) -> None:
        """Adds to a flag of a rank, after everything that this thread wrote before."""
        with self.locks[hash((rank, coord)) % len(self.locks)]:
            self.flags[rank][bar][coord] += value

    def flag(self, rank: int, bar: str, coord: int) -> int:
        """A flag of a rank."""
        with self.locks[hash((rank, coord)) % len(self.locks)]:
            return int(self.flags[rank][bar][coord])

    @contextmanager
    def rows(self, rank: int, region: tuple[tuple[int, int], ...]) -> Iterator[None]:
        """Holds the locks of a region's rows, taken in ascending order so that no two threads wait for each other."""
        first, last = region[0]
        stripes = sorted({(rank * 7 + row) % len(self.locks) for row in range(first // ROWS, (max(last, first + 1) - 1) // ROWS + 1)})
        with ExitStack() as held:
            for stripe in stripes:
                held.enter_context(self.locks[stripe])
            yield


def size_of(program: TileProgram) -> int:
    """Bytes of one rank's block; raises InputError if all ranks together would take too much."""
    at = 64
    for layout in program.layouts().values():
        at = _aligned(at + int(np.prod(layout.shape, dtype=object)) * np.dtype(layout.dtype).itemsize)
    for number in program.bars().values():
        at = _aligned(at + 4 * number)
    if at * program.devices > MOST_BYTES:
        raise InputError(
            f"{program.op} on {program.devices} ranks needs {at * program.devices} bytes; expected at most {MOST_BYTES} for a real run"
        )
    return at


def create(size: int, ranks: int) -> list[shared_memory.SharedMemory]:
    """One block of shared memory per rank, zero at first."""
    made: list[shared_memory.SharedMemory] = []
    try:
        for _ in range(ranks):
            made += [shared_memory.SharedMemory(create=True, size=size)]
    except OSError as error:
        for block in made:
            block.close()
            block.unlink()
        raise InputError(f"cannot get {size * ranks} bytes of shared memory: {error.strerror}") from None
    return made


def _aligned(at: int) -> int:
    return -(-at // 64) * 64
