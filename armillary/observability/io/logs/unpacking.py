"""Unpacks the parts of a binary log piece by piece, so that no number in the file and no dense packing asks for much memory.

A part is a row of zlib or bzip2 streams, because each rank packs its own records, or plain bytes. What comes out is counted, and beyond
64 MiB it may be 250 times what went in, as for every packed file that `armillary.files` reads.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from armillary import memory
from armillary.errors import InputError, one_line
from armillary.files.opening import FREE_BYTES, RATIO

from .header import BZIP2, PLAIN, Part

_PIECE = 1 << 20
#: Unpacked bytes after which it is asked whether there is memory for twice as many.
_ASKED = 1 << 26
#: Packed streams without content that one part may have: a rank that has no records writes none.
MOST_EMPTY = 100_000


class Unpacked:
    """The bytes of one part of a log; `what` names the part in messages."""

    def __init__(self, file: BinaryIO, part: Part, packing: int, what: str, where: str) -> None:
        self.what, self.where = what, where
        self._file, self._part = file, part
        self._at = 0
        make = {PLAIN: _plain, BZIP2: _bunzipped}.get(packing, _inflated)
        self._pieces = make(self)
        self._left = memoryview(b"")
        self._total = 0
        self._empty = 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes, or as many as there are; memory grows with the bytes that are there, not with `size`."""
        made, asked = bytearray(), _ASKED
        while len(made) < size:
            if not self._left:
                piece = next(self._pieces, b"")
                if not piece:
                    break
                self._count(len(piece))
                self._left = memoryview(piece)
            taken = min(size - len(made), len(self._left))
            made += self._left[:taken]
            self._left = self._left[taken:]
            if len(made) >= asked:
                memory.require(2 * len(made), self.what, where=self.where)
                asked = 2 * len(made)
        return bytes(made)

    def whole(self, size: int) -> bytes:
        """The next `size` bytes, all of them; nothing at the end of the part."""
        data = self.read(size)
        if data and len(data) < size:
            raise self.damaged(f"ends {size - len(data):,} bytes within a record")
        return data

    def damaged(self, how: str) -> InputError:
        """The error for a part that cannot be read."""
        return InputError(f"{self.what} {how}; expected a whole log", where=self.where)

    def packed(self) -> bytes:
        """The next packed bytes, none at the end of the part."""
        self._file.seek(self._part.offset + self._at)
        data = self._file.read(min(_PIECE >> 4, self._part.length - self._at))
        self._at += len(data)
        if not data and self._at < self._part.length:  # The file became shorter meanwhile.
            raise self.damaged("cannot be read to its end")
        return data

    def ended(self, empty: bool) -> None:
        """Counts a packed stream that ended without any content."""
        self._empty += empty
        if self._empty > MOST_EMPTY:
            raise self.damaged(f"has more than {MOST_EMPTY:,} empty streams")

    def _count(self, more: int) -> None:
        self._total += more
        if self._total > FREE_BYTES and self._total - FREE_BYTES > RATIO * self._at:
            raise self.damaged(f"unpacks to more than {RATIO} times as many bytes")


def _plain(part: Unpacked) -> Iterator[bytes]:
    while data := part.packed():
        yield data


def _inflated(part: Unpacked) -> Iterator[bytes]:
    stream, data, empty = None, b"", True
    while data or (data := part.packed()):
        stream = stream or zlib.decompressobj()
        try:
            piece = stream.decompress(data, _PIECE)
        except zlib.error as error:
            raise part.damaged(f"holds damaged data ({one_line(str(error), 80)})") from None
        data, empty = stream.unconsumed_tail, empty and not piece
        if stream.eof:
            part.ended(empty)
            data, stream, empty = stream.unused_data, None, True
        if piece:
            yield piece
    if stream is not None:
        raise part.damaged("ends within its packed data")


def _bunzipped(part: Unpacked) -> Iterator[bytes]:
    stream, data, empty = None, b"", True
    while data or (stream is not None and not stream.needs_input) or (data := part.packed()):
        stream = stream or bz2.BZ2Decompressor()
        try:
            piece = stream.decompress(data, _PIECE)
        except (OSError, ValueError) as error:
            raise part.damaged(f"holds damaged data ({one_line(str(error), 80)})") from None
        data, empty = b"", empty and not piece
        if stream.eof:
            part.ended(empty)
            data, stream, empty = stream.unused_data, None, True
        if piece:
            yield piece
    if stream is not None:
        raise part.damaged("ends within its packed data")
