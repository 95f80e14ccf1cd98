"""The bytes of a file that may be compressed, in bounded pieces.

A piece of a plain or gzip file is at most 1 MiB. zstd is fed 2 KiB at a time: its densest block makes 128 KiB of 4 bytes, so no
piece exceeds 65 MiB, whatever the file claims; windows above 128 MiB (more than `zstd` itself takes by default) are refused. A
file that ends in the middle of its compressed data is an error, not an early end.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from armillary.errors import InputError

PIECE_BYTES = 2**20
#: Bytes of the longest line that is read, its end not counted.
LINE_BYTES = 2**16
_ZSTD_FEED_BYTES = 2**11
_ZSTD_WINDOW_BYTES = 2**27


def check_file(path: Path) -> int:
    """Bytes of the file `path`; an error if it is no ordinary file or has none."""
    try:
        if path.is_dir():
            raise InputError("found a directory; expected a trace file", where=str(path))
        if not path.exists():
            raise InputError("found no such file", where=str(path))
        if not path.is_file():
            raise InputError("found a device or pipe; expected an ordinary file", where=str(path))
        length = path.stat().st_size
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from None
    if not length:
        raise InputError("found an empty file; expected at least one request", where=str(path))
    return length


def pieces(path: Path) -> Iterator[bytes]:
    """The contents of `path`, decompressed when its name ends in .gz or .zst."""
    ending = path.suffix.lower()
    try:
        if ending == ".gz":
            with gzip.open(path, "rb") as unpacked:
                while piece := unpacked.read(PIECE_BYTES):
                    yield piece
        elif ending == ".zst":
            yield from _gathered(_unpack_zstd(path))
        else:
            with path.open("rb") as plain:
                while piece := plain.read(PIECE_BYTES):
                    yield piece
    except EOFError:
        message = "found the end of the file in the middle of its compressed data; expected a whole file"
        raise InputError(message, where=str(path)) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"found damaged gzip data ({error})", where=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", where=str(path)) from None


def _unpack_zstd(path: Path) -> Iterator[bytes]:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    frame = None
    with path.open("rb") as packed:
        while feed := packed.read(_ZSTD_FEED_BYTES):
            while feed:
                frame = frame or unpacker.decompressobj()
                try:
                    piece = frame.decompress(feed)
                except zstandard.ZstdError as error:
                    raise InputError(f"found damaged zstd data ({error})", where=str(path)) from None
                feed = b""
                if frame.eof:
                    feed, frame = frame.unused_data, None
                if piece:
                    yield piece
    if frame is not None:
        raise EOFError


def _gathered(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of at least 1 MiB but for the last: a file may have been packed a few bytes at a time."""
    held: list[bytes] = []
    length = 0
    for part in parts:
        held.append(part)
        length += len(part)
        if length >= PIECE_BYTES:
            yield b"".join(held)
            held, length = [], 0
    if held:
        yield b"".join(held)


def whole_lines(path: Path) -> Iterator[tuple[np.ndarray, int]]:
    """uint8[≤ 1 MiB + one line] of whole lines, each with its end, and the number (from 1) of the first of them."""
    line = 1
    rest = b""
    for piece in _without_mark(pieces(path)):
        for start in range(0, len(piece), PIECE_BYTES):
            part = rest + piece[start : start + PIECE_BYTES]
            cut = part.rfind(b"\n") + 1
            rest = part[cut:]
            if len(rest) > LINE_BYTES + 1:
                at = line + part.count(b"\n")
                message = f"found a line of more than {LINE_BYTES} bytes; expected shorter lines of text"
                raise InputError(message, where=f"{path}:{at}")
            if cut:
                yield np.frombuffer(part, np.uint8, cut), line
                line += part.count(b"\n")
    if rest:
        yield np.frombuffer(rest + b"\n", np.uint8), line


def _without_mark(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces less the byte-order mark that some programs put before UTF-8 text."""
    for first in parts:
        yield first.removeprefix(b"\xef\xbb\xbf")
        break
    yield from parts
