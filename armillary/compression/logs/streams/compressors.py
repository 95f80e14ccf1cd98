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
from importlib import import_module
from typing import Any

from armillary.errors import InputError, unknown

#: Maps a family to (level where none is given, least, most, package beyond the core).
FAMILIES: dict[str, tuple[int, int, int, str]] = {
    "gzip": (6, 1, 9, ""), "bzip2": (9, 1, 9, ""), "zstd": (3, 1, 22, ""), "xz": (6, 0, 9, ""),
    "brotli": (9, 0, 11, "brotli"), "ppmd": (6, 2, 64, "pyppmd"), "denum": (6, 0, 22, ""),
}  # fmt: skip
#: The stand-in that scores orders in a search: it was measured to rank orders as the family does, at several times its speed.
STAND_INS = {
    "gzip": "gzip-1", "bzip2": "bzip2-1", "zstd": "zstd-1", "xz": "zstd-5", "brotli": "brotli-4", "ppmd": "ppmd-4", "denum": "denum-1",
}  # fmt: skip
FAST_ZSTD = 3
PPMD_MEMORY = 16 << 20
_PIECE = 1 << 22


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

    def compress(self, data: Any) -> bytes:
        """Returns all bytes that are needed to restore `data`."""
        return _COMPRESS[self.family](data, self.level)

    def decompress(self, data: bytes) -> bytes:
        """Restores the bytes; raises InputError where they are damaged."""
        try:
            return _DECOMPRESS[self.family](data)
        except InputError:
            raise
        except (zlib.error, OSError, lzma.LZMAError, EOFError, ValueError) as error:
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
    usual, least, most, package = FAMILIES[found[1]]
    level = usual if found[2] is None else int(found[2])
    if not least <= level <= most:
        raise InputError(f"compressor {name}: found level {level}; expected {least} to {most}")
    if package:
        _package(package)
    return Compressor(found[1], level)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError(f"the package {name} is not installed: pip install armillary[compression]") from None


_PPMD_HEAD = struct.Struct("<BQI")
#: Zero bytes that the coder may want behind its stream, which leaves them out.
_PPMD_ZEROS = 8


def _ppmd(data: Any, order: int) -> bytes:
    encoder, whole = _package("pyppmd").Ppmd7Encoder(order, PPMD_MEMORY), bytes(data)
    body = encoder.encode(whole) + encoder.flush()
    return _PPMD_HEAD.pack(order, len(whole), zlib.crc32(whole)) + body


def _from_ppmd(data: bytes) -> bytes:
    if len(data) < _PPMD_HEAD.size or not 2 <= data[0] <= 64:
        raise InputError("ppmd: found no order and length; expected both in front")
    order, size, check = _PPMD_HEAD.unpack_from(data)
    decoder = _package("pyppmd").Ppmd7Decoder(order, PPMD_MEMORY)
    pieces, done, zeros = [], 0, 0
    fed = data[_PPMD_HEAD.size :]
    while done < size:
        piece = decoder.decode(fed, min(size - done, _PIECE))
        pieces.append(piece)
        done += len(piece)
        fed = b""
        if done < size and decoder.needs_input:
            # An empty input would be an error of pyppmd's.
            fed, zeros = b"\0", zeros + 1
            if zeros > _PPMD_ZEROS:
                raise InputError(f"ppmd: the stream ends after {done} of {size} bytes")
    out = b"".join(pieces)
    if zlib.crc32(out) != check:
        raise InputError("ppmd: the checksum does not fit")
    return out


def _zstd(data: Any, level: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(data)


def _from_zstd(data: bytes) -> bytes:
    import zstandard

    # Frames are decompressed piece by piece, because the size that a frame announces is not trusted before the bytes are there.
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    out = decompressor.decompress(data)
    if not decompressor.eof:
        raise InputError("zstd: the stream ends early")
    return out


def _gzip(data: Any, level: int) -> bytes:
    made = zlib.compressobj(level, zlib.DEFLATED, 31)
    return made.compress(data) + made.flush()


def _from_gzip(data: bytes) -> bytes:
    made = zlib.decompressobj(31)
    out = made.decompress(data)
    if not made.eof:
        raise InputError("gzip: the stream ends early")
    return out


def _denum(data: Any, level: int) -> bytes:
    from ..denum import pack

    return pack(bytes(data), backend="zstd" if level == 1 else "xz", level=level if level != 1 else 1)


def _from_denum(data: bytes) -> bytes:
    from ..denum import unpack

    return unpack(data)


_COMPRESS: dict[str, Callable[[Any, int], bytes]] = {
    "gzip": _gzip,
    "bzip2": lambda data, level: bz2.compress(data, level),
    "zstd": _zstd,
    "xz": lambda data, level: lzma.compress(data, preset=level),
    "brotli": lambda data, level: bytes(_package("brotli").compress(bytes(data), quality=level)),
    "ppmd": _ppmd,
    "denum": _denum,
}
_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _from_gzip,
    "bzip2": bz2.decompress,
    "zstd": _from_zstd,
    "xz": lzma.decompress,
    "brotli": lambda data: bytes(_package("brotli").decompress(data)),
    "ppmd": _from_ppmd,
    "denum": _from_denum,
}
