"""Container files: slots of chunks, each with its own checksum, which are written only where nothing acknowledged lies.

A file `<number>.con` has a head (magic, version, number) and then slots: a head of 16 bytes (CRC-32C of the payload, its length, the
chunk's number) and the payload. Chunks of a fixed size have slots at fixed places, so that free ones between others can be filled; others
follow one another. A slot that the index does not name is free, whatever it holds.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files.checksums import crc32c

from .chunking import Chunker

MAGIC, VERSION = b"ARMDEDUP", 1
HEAD = struct.Struct("<8sIIQ8x")
SLOT = struct.Struct("<IIQ")


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
        self._open: dict[int, int] = {}
        #: Written and not yet flushed.
        self._dirty: set[int] = set()

    def path(self, number: int) -> Path:
        """The file of container `number`."""
        return self.folder / f"{number:012d}.con"

    def numbers(self) -> list[int]:
        """All containers that have a file."""
        return sorted(int(path.stem) for path in self.folder.glob("*.con") if path.stem.isdecimal())

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
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
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
            self.path(number).unlink(missing_ok=True)

    def drop_cached_pages(self) -> None:
        """Asks the system to forget what it has read of the containers, for measurements."""
        for number in self.numbers():
            file = self._file(number)
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Closes all files."""
        for number in list(self._open):
            self.forget(number)

    def _file(self, number: int, *, create: bool = False) -> int:
        if number not in self._open:
            if len(self._open) > 256:
                if self.sync and self._dirty:
                    self.flush()
                self.close()
            flags = os.O_RDONLY if self.readonly else os.O_RDWR | (os.O_CREAT if create else 0)
            file = os.open(self.path(number), flags | os.O_CLOEXEC, 0o666)
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
