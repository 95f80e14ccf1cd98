"""An append-only file of changes: what was acknowledged is in it, whole, whatever happens to the process.

A record is a header (operation, number of keys, checksum of the payload, checksum of the header), then keys, then values. It is written
in one piece and flushed before `append` returns. A process that dies while it writes leaves a last record that is too short: it was
never acknowledged, and the next reader cuts it off. Damage anywhere else is an error, never a silent loss.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files.stores import open_regular

from .snapshot import flush_folder

MAGIC, VERSION = b"ARMKVJNL", 1
HEAD = struct.Struct("<8sII8s8s")
RECORD = struct.Struct("<IIII")
INSERT, DELETE = 1, 2
MOST_KEYS = 1 << 22


class Journal:
    """Changes to one map, as bits. It is created or opened, replayed once, appended to, and closed."""

    def __init__(self, path: Path, generation: int, keys: np.dtype, values: np.dtype, *, sync: bool = True) -> None:
        self.path, self.sync = path, sync
        self._keys, self._values = np.dtype(f"u{keys.itemsize}"), np.dtype(f"u{values.itemsize}")
        self._head = HEAD.pack(MAGIC, VERSION, generation, keys.name.encode(), values.name.encode())
        self._file = open_regular(None, str(path), os.O_RDWR | os.O_CREAT, str(path))
        #: Where the last whole record ends; the file is never longer while nobody writes.
        self.end = os.fstat(self._file).st_size
        #: Why nothing more may be written, once a failed write could not be undone.
        self._broken = ""
        if self.end < HEAD.size:
            # New, or its maker died before it could acknowledge anything.
            os.ftruncate(self._file, 0)
            self.end = 0
            self._write(self._head)
            flush_folder(path.parent)
        elif os.pread(self._file, HEAD.size, 0) != self._head:
            found = os.pread(self._file, HEAD.size, 0)
            os.close(self._file)
            raise InputError(f"found header {found!r}; expected {self._head!r}", where=str(path))

    def replay(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yields (operation, keys, values) of every whole record in order, and cuts off a last one that is not whole."""
        size, at = os.fstat(self._file).st_size, HEAD.size
        while at < size:
            head = os.pread(self._file, RECORD.size, at)
            rest = size - at
            if rest < RECORD.size or (not any(head) and self._zeros(at, size)):
                break
            operation, count, checksum, own = RECORD.unpack(head)
            if zlib.crc32(head[:12]) != own or operation not in (INSERT, DELETE) or count > MOST_KEYS:
                raise InputError(f"byte {at}: found a damaged record; expected a whole one", where=str(self.path))
            length = count * (self._keys.itemsize + (self._values.itemsize if operation == INSERT else 0))
            if at + RECORD.size + length > size:
                break
            payload = os.pread(self._file, length, at + RECORD.size)
            if zlib.crc32(payload) != checksum:
                if at + RECORD.size + length == size:
                    break
                raise InputError(f"byte {at}: found a damaged record; expected its checksum to agree", where=str(self.path))
            cut = count * self._keys.itemsize
            at += RECORD.size + length
            yield operation, np.frombuffer(payload[:cut], self._keys), np.frombuffer(payload[cut:], self._values)
        os.ftruncate(self._file, at)
        self.end = at

    def _zeros(self, at: int, size: int) -> bool:
        """Returns whether only zeros follow, as in a file that grew before its bytes reached the device."""
        return all(not any(os.pread(self._file, 1 << 16, place)) for place in range(at, size, 1 << 16))

    def append(self, operation: int, keys: np.ndarray, values: np.ndarray | None = None) -> None:
        """Writes one record; when this returns, the change survives the process (and the machine, with `sync`)."""
        payload = keys.tobytes() + (b"" if values is None else values.tobytes())
        start = RECORD.pack(operation, len(keys), zlib.crc32(payload), 0)[:12]
        self._write(start + struct.pack("<I", zlib.crc32(start)) + payload)

    def _write(self, data: bytes) -> None:
        if self._broken:
            raise OSError(f"{self.path}: {self._broken}")
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._file, data[done:], self.end + done)
            if self.sync:
                os.fsync(self._file)
        except OSError as error:
            self._broken = f"a write failed ({error}); open the map again"
            # A record that was not acknowledged must not come back later.
            os.ftruncate(self._file, self.end)
            raise
        self.end += len(data)

    def close(self) -> None:
        """Gives the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
