"""The only way to open a user's file, which is a regular file, plain or packed, of bounded size, and whose faults are said in one line.

A folder, a FIFO, a socket or a device is refused and never waited on. gzip and Zstandard are recognised by their first bytes and
unpacked while they are read, in pieces of at most 1 MiB (gzip) or 65 MiB (Zstandard, whose densest block makes 128 KiB of 4 bytes).
What comes out is bounded in bytes and, above 64 MiB, as a multiple of what went in. Data that are truncated or damaged raise
`InputError`, as does anything that the operating system refuses.
"""

from __future__ import annotations

import io
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Protocol

from armillary.errors import InputError, one_line

if TYPE_CHECKING:
    from typing_extensions import Buffer

Name = str | os.PathLike[str]

#: Bytes that a stream may have, unless the caller says otherwise.
STREAM_BYTES = 1 << 34
#: Bytes of a file that is read whole, unless the caller says otherwise.
WHOLE_BYTES = 1 << 28
#: Bytes of the longest line, unless the caller says otherwise.
LINE_BYTES = 1 << 20
#: A packed file may unpack to this multiple of its size. The first `FREE_BYTES` are exempt, because a small file may well repeat one byte.
RATIO = 250
FREE_BYTES = 1 << 26
_PIECE = 1 << 20
_GZIP, _ZSTD, _SKIPPABLE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"
_ZSTD_FEED = 1 << 11
_ZSTD_WINDOW = 1 << 27


class _Reads(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def open_file(
    path: Name, *, limit: int | None = STREAM_BYTES, unpack: bool = True, seekable: bool = False, ratio: float = RATIO
) -> BinaryIO:  # fmt: skip
    """A regular file, opened to be read as bytes and to be closed by the caller (`with open_file(path) as file`).

    limit: the most bytes that the file may have, packed and unpacked; None is for a caller that keeps nothing of what it reads.
    unpack: gzip and Zstandard are unpacked. False gives the bytes as they stand, for formats that may begin in any way.
    seekable: a packed file is first unpacked into a temporary file, so that `seek` works.
    ratio: the most bytes that one packed byte may become, beyond the first 64 MiB.
    """
    raw = _open_regular(path)
    try:
        size = os.fstat(raw.fileno()).st_size
        if limit is not None and size > limit:
            raise InputError(f"found {size:,} bytes; expected at most {limit:,}", where=_shown(path))
        pieces = _unpacking(raw, path) if unpack else None
        if pieces is None:
            return io.BufferedReader(raw, _PIECE)
        stream = io.BufferedReader(_Unpacked(raw, pieces, path, limit, ratio), _PIECE)
        return _spooled(stream) if seekable else stream
    except BaseException:
        raw.close()
        raise


def read_bytes(path: Name, *, limit: int = WHOLE_BYTES, unpack: bool = True) -> bytes:
    """All bytes of a file, at most `limit` of them."""
    with open_file(path, limit=limit, unpack=unpack) as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # The file grew meanwhile, or it is one whose size the system gives as 0.
        raise InputError(f"found more than {limit:,} bytes; expected at most {limit:,}", where=_shown(path))
    return data


def read_head(path: Name, size: int = 4096) -> bytes:
    """The first `size` bytes of a file, unpacked, from which its format can be told."""
    with open_file(path, limit=None) as file:
        return file.read(size)


def read_text(path: Name, *, limit: int = WHOLE_BYTES) -> str:
    """The text of a UTF-8 file without a byte-order mark; bytes that are no text are refused with their line."""
    return decoded(read_bytes(path, limit=limit).removeprefix(b"\xef\xbb\xbf"), path)


def read_lines(
    path: Name, *, limit: int | None = STREAM_BYTES, longest: int = LINE_BYTES, most: int | None = None
) -> Iterator[tuple[int, str]]:  # fmt: skip
    """(number from 1, text without its end) of each line of a UTF-8 file, streamed.

    longest: bytes of the longest line. most: the number of lines that is refused when it is exceeded.
    """
    number = 0
    for block, first in line_blocks(path, limit=limit, longest=longest):
        lines = decoded(block, path, first).split("\n")
        lines.pop()
        for number, line in enumerate(lines, first):
            if most is not None and number > most:
                raise InputError(f"found more than {most:,} lines; expected at most {most:,}", where=_shown(path))
            yield number, line.removesuffix("\r")


def line_blocks(
    path: Name, *, limit: int | None = STREAM_BYTES, longest: int = LINE_BYTES, size: int = _PIECE
) -> Iterator[tuple[bytes, int]]:  # fmt: skip
    """(whole lines, number of the first of them) of a text file in blocks of about `size` bytes; every line ends in a line feed.

    The bytes are not decoded. A byte-order mark is left out, and a last line without an end gets one.
    """
    line, rest, gathered, length = 1, b"", list[bytes](), 0
    with open_file(path, limit=limit) as file:
        mark = b"\xef\xbb\xbf"
        # No piece is longer than the longest line, so a line that is too long always reaches from one piece into the next.
        while piece := file.read(min(longest, _PIECE)):
            piece, mark = piece.removeprefix(mark), b""
            cut = piece.rfind(b"\n") + 1
            if len(rest) + (piece.find(b"\n") if cut else len(piece)) > longest:
                line += sum(part.count(b"\n") for part in gathered)
                raise InputError(f"found a line of more than {longest:,} bytes; expected shorter ones", where=f"{_shown(path)}:{line}")
            if not cut:
                rest += piece
                continue
            gathered += rest, piece[:cut]
            length += len(rest) + cut
            rest = piece[cut:]
            if length >= size:
                block = b"".join(gathered)
                gathered, length = [], 0
                yield block, line
                line += block.count(b"\n")
    block = b"".join((*gathered, rest, b"\n" if rest else b""))
    if block:
        yield block, line


def decoded(data: bytes, path: Name, first: int = 1) -> str:
    """`data` as text, the first line of which is line `first` of the file; no UTF-8 or a NUL is refused with its line."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first + data.count(b"\n", 0, error.start)
        raise InputError(f"found the byte 0x{data[error.start]:02x}; expected UTF-8 text", where=f"{_shown(path)}:{line}") from None
    if (at := data.find(b"\0")) >= 0:
        line = first + data.count(b"\n", 0, at)
        raise InputError("found a NUL byte; expected text", where=f"{_shown(path)}:{line}")
    return text


def _shown(path: Name) -> str:
    return one_line(str(path), 200)


class _Plain(io.FileIO):
    """A file whose faults while it is read are raised as faults of the input."""

    def __init__(self, descriptor: int, where: str) -> None:
        super().__init__(descriptor, "rb")
        self._where = where

    def readinto(self, buffer: Buffer, /) -> int:
        try:
            return super().readinto(buffer) or 0
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror or error})", where=self._where) from None


def _open_regular(path: Name) -> _Plain:
    where = _shown(path)
    try:
        # It is examined first, because opening a FIFO wakes its writer, and again once it is open, because it may have been replaced.
        _refuse_other_kinds(os.stat(path), where)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError("no such file", where=where) from None
    except OSError as error:
        raise InputError(f"cannot be read ({(error.strerror or str(error)).lower()})", where=where) from None
    except (TypeError, ValueError) as error:
        raise InputError(f"found {one_line(repr(path), 60)}; expected the name of a file ({error})") from None
    try:
        _refuse_other_kinds(os.fstat(descriptor), where)
        os.set_blocking(descriptor, True)
        return _Plain(descriptor, where)
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_other_kinds(facts: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise InputError(f"found {kind_of(facts.st_mode)}; expected a regular file", where=where)


def kind_of(mode: int) -> str:
    """The kind of a file that is not regular, in words."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a block device"}
    return kinds.get(stat.S_IFMT(mode), "a socket" if stat.S_ISSOCK(mode) else "something else")


def _unpacking(raw: _Plain, path: Name) -> Iterator[bytes] | None:
    """The unpacked pieces of a packed file, or None for a plain one."""
    head = raw.read(4) or b""
    raw.seek(0)
    where, name = _shown(path), os.fspath(path)
    if head.startswith(_GZIP):
        return _gunzip(raw, where)
    if head == _ZSTD or (head[1:] == _SKIPPABLE and head[0] >> 4 == 5):
        return _unzstd(raw, where)
    for ending, kind in ((".gz", "gzip"), (".zst", "Zstandard")):
        if str(name).lower().endswith(ending):
            raise InputError(f"found no {kind} data; expected them, as the name ends in {ending}", where=where)
    return None


def _gunzip(raw: _Reads, where: str) -> Iterator[bytes]:
    member, data = None, b""
    while data or (data := raw.read(_PIECE >> 4)):
        if member is None:
            data = data.lstrip(b"\0")  # Tapes and disks pad with zeros.
            if not data:
                continue
            member = zlib.decompressobj(31)
        try:
            piece = member.decompress(data, _PIECE)
        except zlib.error as error:
            raise InputError(f"found damaged gzip data ({one_line(str(error), 80)}); expected a whole file", where=where) from None
        data = member.unconsumed_tail
        if member.eof:
            data, member = member.unused_data, None
        yield piece
    if member is not None:
        raise _truncated("gzip", where)


def _unzstd(raw: _Reads, where: str) -> Iterator[bytes]:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    frame, data = None, b""
    while data or (data := raw.read(_ZSTD_FEED)):
        frame = frame or unpacker.decompressobj()
        try:
            piece = frame.decompress(data)
        except (zstandard.ZstdError, MemoryError) as error:
            raise InputError(f"found damaged Zstandard data ({one_line(str(error), 80)}); expected a whole file", where=where) from None
        data = b""
        if frame.eof:
            data, frame = frame.unused_data, None
        yield piece
    if frame is not None:
        raise _truncated("Zstandard", where)


def _truncated(kind: str, where: str) -> InputError:
    return InputError(f"found the end of the file within its {kind} data; expected a whole file", where=where)


class _Unpacked(io.RawIOBase):
    """The bytes of a packed file, counted as they come out."""

    def __init__(self, raw: _Plain, pieces: Iterator[bytes], path: Name, limit: int | None, ratio: float) -> None:
        self._raw, self._pieces, self._where = raw, pieces, _shown(path)
        self._limit, self._ratio = limit, ratio
        self._left = memoryview(b"")
        self._total = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._total += len(piece)
            self._check()
            self._left = memoryview(piece)
        room = memoryview(buffer).cast("B")
        count = min(len(room), len(self._left))
        room[:count], self._left = self._left[:count], self._left[count:]
        return count

    def _check(self) -> None:
        if self._limit is not None and self._total > self._limit:
            raise InputError(f"found more than {self._limit:,} bytes after unpacking; expected at most {self._limit:,}", where=self._where)
        if self._total > FREE_BYTES and self._total - FREE_BYTES > self._ratio * self._raw.tell():
            raise InputError(f"found bytes that unpack to more than {self._ratio:g} times as many; expected fewer", where=self._where)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _spooled(stream: BinaryIO) -> BinaryIO:
    room: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        with stream:
            while piece := stream.read(_PIECE):
                room.write(piece)
        room.seek(0)
    except BaseException:
        room.close()
        raise
    return room
