"""Container files: slots of chunks, each with its own checksum, which are written only where nothing acknowledged lies.

A file `<number>.con` has a head (magic, version, number) and then slots: a head of 16 bytes (CRC-32C of the payload, its length, the
chunk's number) and the payload. Chunks of a fixed size have slots at fixed places, so that free ones between others can be filled; others
follow one another. A slot that the index does not name is free, whatever it holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files.checksums import crc32c
from armillary.files.stores import open_folder, open_regular

from .chunking import Chunker

MAGIC, VERSION = b"ARMDEDUP", 1
HEAD = struct.Struct("<8sIIQ8x")
SLOT = struct.Struct("<IIQ")
#: Space is given back in whole blocks of this many bytes.
BLOCK = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


@dataclass(frozen=True)
class Place:
    """The place of a chunk: container, slot, offset of the slot's head in the file, and bytes that its payload may take."""

    container: int
    slot: int
    offset: int
    room: int


class BadSlot(InputError):
    """A slot whose bytes are not what was written; `place` says which."""

    def __init__(self, path: Path, slot: int, message: str) -> None:
        super().__init__(message, where=f"{path.name}: slot {slot}")


class Containers:
    """The folder of container files. Files that were opened stay open until `close`."""

    def __init__(self, folder: Path, chunker: Chunker, *, sync: bool, readonly: bool) -> None:
        self.folder, self.chunker, self.sync, self.readonly = folder, chunker, sync, readonly
        self._folder = open_folder(folder)
        self._open: dict[int, int] = {}
        #: Written and not yet flushed.
        self._dirty: set[int] = set()

    def path(self, number: int) -> Path:
        """The file of container `number`."""
        return self.folder / f"{number:012d}.con"

    def numbers(self) -> list[int]:
        """All containers that have a file."""
        stems = (name.removesuffix(".con") for name in os.listdir(self._folder) if name.endswith(".con"))
        return sorted(int(stem) for stem in stems if len(stem) == 12 and stem.isascii() and stem.isdecimal())

    def fixed_place(self, number: int, slot: int) -> Place:
        """Slot `slot` of a container of chunks of a fixed size."""
        return Place(number, slot, HEAD.size + slot * (SLOT.size + self.chunker.chunk), self.chunker.chunk)

    def write(self, number: int, offset: int, data: bytes | bytearray) -> None:
        """Writes slots with their heads at `offset`, and creates the file if there is none."""
        file = self._file(number, create=True)
        at = 0
        while at < len(data):
            at += os.pwrite(file, memoryview(data)[at:], offset + at)
        self._dirty.add(number)

    def flush(self) -> None:
        """Flushes everything to the device, if the store was opened with `sync`."""
        if self.sync and self._dirty:
            for number in self._dirty:
                os.fdatasync(self._file(number))
            os.fsync(self._folder)
        self._dirty.clear()

    def read(self, place: Place, length: int, checksum: int) -> bytes:
        """The payload of a slot, checked; BadSlot where it is not what the index says."""
        try:
            data = os.pread(self._file(place.container), SLOT.size + length, place.offset)
        except FileNotFoundError:
            raise BadSlot(self.path(place.container), place.slot, "found no container file; expected a chunk") from None
        if len(data) != SLOT.size + length:
            raise BadSlot(self.path(place.container), place.slot, f"found {len(data)} bytes; expected {SLOT.size + length}")
        held, size, _ = SLOT.unpack_from(data)
        payload = data[SLOT.size :]
        if held != checksum or size != length or crc32c(payload) != checksum:
            raise BadSlot(
                self.path(place.container),
                place.slot,
                f"bad CRC: found {held:08x} over {size} bytes; expected {checksum:08x} over {length}",
            )
        return payload

    def forget(self, number: int) -> None:
        """Closes a container's file, so that the next read looks for it anew."""
        file = self._open.pop(number, None)
        if file is not None:
            os.close(file)

    def remove(self, numbers: Iterable[int]) -> None:
        """Unlinks containers that nothing refers to."""
        for number in numbers:
            self.forget(number)
            self._dirty.discard(number)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(number).name, dir_fd=self._folder)

    def disk_bytes(self) -> int:
        """Bytes that the container files take on the disk; holes take none."""
        return sum(512 * os.stat(self.path(n).name, dir_fd=self._folder, follow_symlinks=False).st_blocks for n in self.numbers())

    def punch(self, number: int, live: Sequence[tuple[int, int]]) -> None:
        """Gives the space of a container back to the file system, except for the byte ranges `live`, which ascend.

        Blocks that hold a live byte stay as they are. Without support of the file system nothing happens, and the space comes back when
        the container is merged.
        """
        try:
            file = self._file(number)
        except FileNotFoundError:  # A damaged store; `verify` says so.
            return
        found = os.fstat(file)
        if _fallocate() is None or 512 * found.st_blocks <= sum(end - begin for begin, end in live):
            return
        reach = HEAD.size
        for begin, end in (*live, (found.st_size, found.st_size)):
            first, last = -(-reach // BLOCK) * BLOCK, begin // BLOCK * BLOCK
            if first < last and not _punched(file, first, last - first):
                return
            reach = max(reach, end)

    def drop_cached_pages(self) -> None:
        """Asks the system to forget what it has read of the containers, for measurements."""
        for number in self.numbers():
            file = self._file(number)
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Closes all files and the folder."""
        self.forget_all()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def forget_all(self) -> None:
        """Closes the container files, so that the next reads look for them anew."""
        for number in list(self._open):
            self.forget(number)

    def _file(self, number: int, *, create: bool = False) -> int:
        if number not in self._open:
            if len(self._open) > 256:
                if self.sync and self._dirty:
                    self.flush()
                self.forget_all()
            flags = os.O_RDONLY if self.readonly else os.O_RDWR | (os.O_CREAT if create else 0)
            file = open_regular(self._folder, self.path(number).name, flags, str(self.path(number)))
            if os.fstat(file).st_size == 0 and not self.readonly:
                os.pwrite(file, HEAD.pack(MAGIC, VERSION, 0, number), 0)
            elif os.pread(file, HEAD.size, 0) != HEAD.pack(MAGIC, VERSION, 0, number):
                os.close(file)
                raise InputError("found no head of a container; expected a file of this store", where=str(self.path(number)))
            self._open[number] = file
        return self._open[number]


def slot_bytes(payload: bytes | memoryview, checksum: int, chunk: int, room: int | None = None) -> bytes:
    """A slot as it is written: head and payload, with zeros up to `room` where slots have fixed places."""
    rest = b"" if room is None else bytes(room - len(payload))
    return SLOT.pack(checksum, len(payload), chunk) + bytes(payload) + rest


def occupied_slots(slots: Iterable[int], count: int) -> np.ndarray:
    """Which of `count` slots are taken (bool)."""
    taken = np.zeros(count, np.bool_)
    taken[list(slots)] = True
    return taken


@functools.cache
def _fallocate() -> Callable[..., int] | None:
    """The C library's `fallocate`, or None where it has none."""
    try:
        found = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found


def _punched(file: int, offset: int, length: int) -> bool:
    """Whether the file system took bytes of a file back."""
    fallocate = _fallocate()
    if fallocate is None:
        return False
    while fallocate(file, _PUNCH_HOLE | _KEEP_SIZE, offset, length):
        if ctypes.get_errno() != errno.EINTR:
            return False
    return True
