"""Files that hold tensors which are not in memory: one file per tensor, with its length and checksum at the front.

A file is written by one process and read by the same process; it is no checkpoint. A file that was cut or changed is found when it is
read, and the error names it.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

from armillary.errors import InputError

#: Magic, version, payload bytes and CRC-32 of the payload; padded so that the payload is aligned.
_HEAD = struct.Struct("<8sIQI")
_MAGIC, _VERSION, _OFFSET = b"ARMSPILL", 1, 4096


class SpillFolder:
    """A folder for spilled tensors; what is made in it is removed by `close`."""

    def __init__(self, folder: str | Path, need_bytes: int) -> None:
        """Checks that the folder can be written and has room for `need_bytes` before the first byte is written."""
        self.path = Path(folder)
        if not self.path.is_dir():
            raise InputError("is not a folder", where=str(self.path))
        probe = self.path / f".offload-{os.getpid()}"
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(self.path)) from None
        free = shutil.disk_usage(self.path).free
        if free < need_bytes:
            raise InputError(f"has {free} bytes free; expected at least {need_bytes}", where=str(self.path))
        self._made: list[SpillFile] = []

    def file(self, name: str) -> SpillFile:
        """A new file for one tensor."""
        made = SpillFile(self.path / f"offload-{os.getpid()}-{id(self):x}-{name}.spill")
        self._made.append(made)
        return made

    def close(self) -> None:
        """Closes and removes every file."""
        for made in self._made:
            made.remove()
        self._made.clear()


class SpillFile:
    """One tensor's bytes on the drive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None

    def write(self, data: memoryview) -> None:
        """Writes the whole content."""
        head = _HEAD.pack(_MAGIC, _VERSION, data.nbytes, zlib.crc32(data))
        try:
            at = 0
            while at < data.nbytes:
                at += os.pwrite(self._file, data[at:], _OFFSET + at)
            os.pwrite(self._file, head.ljust(_OFFSET, b"\0"), 0)
            os.ftruncate(self._file, _OFFSET + data.nbytes)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(self.path)) from None

    def read_into(self, data: memoryview) -> None:
        """Fills `data` with the content, after its length and checksum were found right."""
        try:
            head = os.pread(self._file, _HEAD.size, 0)
            at = 0
            while at < data.nbytes:
                got = os.preadv(self._file, [data[at:]], _OFFSET + at)
                if got == 0:
                    break
                at += got
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(self.path)) from None
        if len(head) < _HEAD.size or at < data.nbytes:
            raise InputError(f"found {at} bytes; expected {data.nbytes}, so the file was cut", where=str(self.path))
        magic, version, size, checksum = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION or size != data.nbytes or checksum != zlib.crc32(data):
            raise InputError("the content is not what was written", where=str(self.path))

    def remove(self) -> None:
        """Closes and deletes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self.path.unlink(missing_ok=True)
