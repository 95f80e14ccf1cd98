"""The general compressors by name and level; a faster one of the same family stands in for each while orders are searched.

They are `gzip-6`, `bzip2-9`, `zstd-3`, `zstd-19`, `xz-6`, `brotli-9` and `ppmd-6` (the number is the level, or the order of PPMd's
contexts), and `denum`, which is this arena's own.
"""

from __future__ import annotations

import bz2
import lzma
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from armillary import extras
from armillary.errors import InputError, unknown

#: Maps a family to (level where none is given, least, most).
FAMILIES: dict[str, tuple[int, int, int]] = {
    "gzip": (6, 1, 9), "bzip2": (9, 1, 9), "zstd": (3, 1, 22), "xz": (6, 0, 9), "brotli": (9, 0, 11), "ppmd": (6, 2, 64),
    "denum": (6, 0, 22),
}  # fmt: skip
#: The stand-in that scores orders in a search: it was measured to rank orders as the family does, at several times its speed.
STAND_INS = {
    "gzip": "gzip-1", "bzip2": "bzip2-1", "zstd": "zstd-1", "xz": "zstd-5", "brotli": "brotli-4", "ppmd": "ppmd-4", "denum": "denum-1",
}  # fmt: skip
#: Maps a family to (level up to which, bytes per second and core), ours: measured on the built-in logs.
SPEEDS: dict[str, tuple[tuple[int, float], ...]] = {
    "gzip": ((6, 30e6), (9, 10e6)), "bzip2": ((9, 13e6),), "zstd": ((3, 280e6), (9, 60e6), (15, 12e6), (22, 3.5e6)), "xz": ((9, 4e6),),
    "brotli": ((5, 60e6), (9, 9e6), (11, 0.6e6)), "ppmd": ((64, 10e6),), "denum": ((22, 12e6),),
}  # fmt: skip
FAST_ZSTD = 3
PPMD_MEMORY = 16 << 20
#: The most bytes that a decoder makes in memory unless it is told otherwise.
MOST_BYTES = 1 << 30
_PIECE = 1 << 22
#: What a decoder of xz may take for its dictionary; preset 9 takes 65 MiB.
_XZ_MEMORY = 1 << 28
#: Zstandard's densest block makes 128 KiB of four bytes.
_ZSTD_BLOCK = 1 << 17
_ZSTD_WINDOW = 1 << 27
_ZSTD_FEED = 1 << 11


@dataclass(frozen=True)
class Compressor:
    """A compressor of a family at a level; `compress` and `decompress` take and give bytes."""

    family: str
    level: int

    @property
    def name(self) -> str:
        """The name, as `compressor` takes it."""
        return f"{self.family}-{self.level}"

    @property
    def stand_in(self) -> Compressor:
        """The faster compressor that ranks orders in its place; a level that is fast enough is its own stand-in."""
        return self if self.family == "zstd" and self.level <= FAST_ZSTD else compressor(STAND_INS[self.family])

    @property
    def usual_bytes_per_s(self) -> float:
        """Bytes of logs per second and core, measured once; a constant, so that what rests on it is the same on every machine."""
        return next(speed for most, speed in SPEEDS[self.family] if self.level <= most)

    def compress(self, data: Any) -> bytes:
        """Returns all bytes that are needed to restore `data`."""
        return _COMPRESS[self.family](data, self.level)

    def decompress(self, data: bytes, *, most_bytes: int = MOST_BYTES) -> bytes:
        """Restores the bytes; raises InputError where they are damaged or more than `most_bytes`."""
        try:
            out = _DECOMPRESS[self.family](data, most_bytes)
            if len(out) > most_bytes:
                raise too_large(self.name, most_bytes)
            return out
        except InputError:
            raise
        except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError, MemoryError, SystemError) as error:
            raise InputError(f"{self.name}: the compressed bytes are damaged ({error})") from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("zstd", "zstandard", "brotli", "pyppmd"):
                raise InputError(f"{self.name}: the compressed bytes are damaged ({error})") from None
            raise


def compressor(name: str) -> Compressor:
    """Returns the compressor of that name, which is a family, or a family and a level."""
    found = re.fullmatch(r"([a-z0-9]+?)(?:-(\d{1,2}))?", name)
    if not found or found[1] not in FAMILIES:
        raise unknown("compressor", name, [*FAMILIES, "zstd-3", "gzip-6", "xz-6"])
    usual, least, most = FAMILIES[found[1]]
    level = usual if found[2] is None else int(found[2])
    if not least <= level <= most:
        raise InputError(f"compressor {name}: found level {level}; expected {least} to {most}")
    return Compressor(found[1], level)


def too_large(name: str, most_bytes: int) -> InputError:
    """The error for bytes that unpack to more than the caller allows."""
    return InputError(f"{name}: found more than {most_bytes:,} bytes after unpacking; expected at most that many (set most_bytes)")


_PPMD_HEAD = struct.Struct("<BQI")
#: The coder leaves out the zero bytes at the end of its stream, and the decoder wants some of them.
_PPMD_ZEROS = bytes(1 << 16)


def _ppmd(data: Any, order: int) -> bytes:
    encoder, whole = extras.need("pyppmd").Ppmd7Encoder(order, PPMD_MEMORY), bytes(data)
    body = encoder.encode(whole) + encoder.flush()
    return _PPMD_HEAD.pack(order, len(whole), zlib.crc32(whole)) + body


def _from_ppmd(data: bytes, most_bytes: int) -> bytes:
    if len(data) < _PPMD_HEAD.size or not 2 <= data[0] <= 64:
        raise InputError("ppmd: found no order and length; expected both in front")
    order, size, check = _PPMD_HEAD.unpack_from(data)
    if size > most_bytes:
        raise too_large("ppmd", most_bytes)
    decoder = extras.need("pyppmd").Ppmd7Decoder(order, PPMD_MEMORY)
    pieces, done = [], 0
    fed = data[_PPMD_HEAD.size :]
    while done < size:
        piece = decoder.decode(fed, min(size - done, _PIECE))
        pieces.append(piece)
        done += len(piece)
        if done < size and decoder.eof:
            # After its end, or an error, pyppmd would go on with a broken model and read wherever that leads.
            raise InputError(f"ppmd: the stream ends after {done} of {size} bytes")
        # A cut stream is read to the end all the same, because a decoder whose thread still waits for input cannot be dropped safely.
        fed = _PPMD_ZEROS if decoder.needs_input else b""
    out = b"".join(pieces)
    if zlib.crc32(out) != check:
        raise InputError("ppmd: the checksum does not fit")
    return out


def _zstd(data: Any, level: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(data)


def _from_zstd(data: bytes, most_bytes: int) -> bytes:
    import zstandard

    size = zstandard.frame_content_size(data)
    if size > most_bytes:
        raise too_large("zstd", most_bytes)
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    if 0 <= size <= _ZSTD_BLOCK * (len(data) // 4 + 1):
        # The size is one that so many bytes can have, so it may be allocated.
        return unpacker.decompress(data)
    frame, pieces, done = unpacker.decompressobj(), [], 0
    for at in range(0, len(data), _ZSTD_FEED):
        pieces.append(frame.decompress(data[at : at + _ZSTD_FEED]))
        done += len(pieces[-1])
        if frame.eof or done > most_bytes:
            return b"".join(pieces)
    raise InputError("zstd: the stream ends early")


def _gzip(data: Any, level: int) -> bytes:
    made = zlib.compressobj(level, zlib.DEFLATED, 31)
    return made.compress(data) + made.flush()


def _from_gzip(data: bytes, most_bytes: int) -> bytes:
    made = zlib.decompressobj(31)
    out = made.decompress(data, most_bytes + 1)
    if not made.eof and len(out) <= most_bytes:
        raise InputError("gzip: the stream ends early")
    return out


def _streams(new: Callable[[], Any], data: bytes, most_bytes: int) -> bytes:
    """Unpacks the streams of bzip2 or xz, one behind the other."""
    pieces, left = list[bytes](), most_bytes + 1
    while left > 0:
        made = new()
        piece = made.decompress(data, left)
        pieces.append(piece)
        left -= len(piece)
        if not made.eof:
            if left > 0:
                raise EOFError("the stream ends early")
            break
        data = made.unused_data
        if not data:
            break
    return b"".join(pieces)


def _from_brotli(data: bytes, most_bytes: int) -> bytes:
    made = extras.need("brotli").Decompressor()
    pieces, done, feed = list[bytes](), 0, data
    while not made.is_finished() and done <= most_bytes:
        piece = made.process(feed, output_buffer_limit=min(_PIECE, most_bytes + 1 - done))
        if not piece and made.can_accept_more_data() and not made.is_finished():
            raise InputError("brotli: the stream ends early")
        pieces.append(piece)
        done += len(piece)
        feed = b""
    return b"".join(pieces)


def _denum(data: Any, level: int) -> bytes:
    from ..denum import pack

    return pack(bytes(data), backend="zstd" if level == 1 else "xz", level=level if level != 1 else 1)


def _from_denum(data: bytes, most_bytes: int) -> bytes:
    from ..denum import unpack

    return unpack(data, most_bytes=most_bytes)


_COMPRESS: dict[str, Callable[[Any, int], bytes]] = {
    "gzip": _gzip,
    "bzip2": lambda data, level: bz2.compress(data, level),
    "zstd": _zstd,
    "xz": lambda data, level: lzma.compress(data, preset=level),
    "brotli": lambda data, level: bytes(extras.need("brotli").compress(bytes(data), quality=level)),
    "ppmd": _ppmd,
    "denum": _denum,
}
_DECOMPRESS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _from_gzip,
    "bzip2": lambda data, most: _streams(bz2.BZ2Decompressor, data, most),
    "zstd": _from_zstd,
    "xz": lambda data, most: _streams(lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY), data, most),
    "brotli": _from_brotli,
    "ppmd": _from_ppmd,
    "denum": _from_denum,
}
