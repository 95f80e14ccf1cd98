"""The beginning of a binary Darshan log, which is not packed: its version, its byte order, and where in the file its parts lie.

    8 bytes version | 8 bytes magic number | 1 byte packing | flags of incomplete modules | (offset, bytes) of the names and of each
    module | version of each module

Until version 3.21 there is room for 16 modules and 32 flags, and from 3.41 on for 64 of each. Everything that the header says is checked
against the size of the file before anything else is read, so a truncated log is refused with the byte at which it should end.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from armillary.errors import InputError, one_line

from .modules import NUMBERS, VERSIONS

MAGIC = 6567223
#: Bytes that hold the whole header of every version.
HEADER_BYTES = 2048
ZLIB, BZIP2, PLAIN = range(3)
PACKINGS = (ZLIB, BZIP2, PLAIN)
#: (place and form of the flags, place of the map of names, room for modules) by version.
_NEW, _OLD = ((24, "Q"), 32, 64), ((20, "I"), 24, 16)
#: Modules that were put between others, with the first version that has them.
_ADDED = (("PNETCDF_VAR", "3.41"), ("H5D", "3.20"))


@dataclass(frozen=True)
class Part:
    """Where one part of a log lies, in packed bytes, and the version of its layout."""

    offset: int
    length: int
    version: int = 0


@dataclass(frozen=True)
class Header:
    """What the header says; `order` is `<` or `>` as in `struct`, and the modules go by their names."""

    version: str
    order: str
    packing: int
    job: Part
    names: Part
    modules: dict[str, Part]
    partial: tuple[str, ...]


def is_binary(head: bytes) -> bool:
    """Whether a file begins like a binary Darshan log, of either byte order."""
    return len(head) >= 16 and MAGIC in (struct.unpack_from("<q", head, 8)[0], struct.unpack_from(">q", head, 8)[0])


def read_header(head: bytes, size: int, where: str) -> Header:
    """The header of a log of `size` bytes that begins with `head`; all parts that it names lie within the file."""
    version = head[:8].partition(b"\0")[0].decode("ascii", "replace")
    if version not in VERSIONS:
        raise InputError(f'found the log version "{one_line(version, 20)}"; expected one of {", ".join(VERSIONS)}', where=where)
    order = "<" if struct.unpack_from("<q", head, 8)[0] == MAGIC else ">"
    (flags_at, flags_form), place, room = _NEW if version >= "3.41" else _OLD
    end = place + 16 * (room + 1) + 4 * room
    if size < end or len(head) < end:
        raise InputError(f"found {size:,} bytes; expected a header of {end:,} bytes", where=where)
    if head[16] not in PACKINGS:
        raise InputError(f"found the packing {head[16]}; expected 0 (zlib), 1 (bzip2) or 2 (none)", where=where)
    flags = struct.unpack_from(order + flags_form, head, flags_at)[0]
    maps = [struct.unpack_from(f"{order}QQ", head, place + 16 * i) for i in range(room + 1)]
    versions = struct.unpack_from(f"{order}{room}I", head, place + 16 * (room + 1))
    names = _names(version, room)
    for number, (offset, length) in enumerate(maps):
        what = "the names of files" if number == 0 else f"the module {names[number - 1]}"
        if length and offset + length > size:
            raise InputError(f"found {size:,} bytes; expected {offset + length:,} bytes, because {what} should end there", where=where)
        if length and offset < end:
            raise InputError(f"found {what} at byte {offset:,}; expected it behind the header of {end:,} bytes", where=where)
    # The description of the job reaches from the header to whatever comes next.
    following = min((offset for offset, length in maps if length), default=size)
    modules = {names[i]: Part(maps[i + 1][0], maps[i + 1][1], versions[i]) for i in range(room) if maps[i + 1][1]}
    partial = tuple(name for i, name in enumerate(names) if flags >> i & 1 and name in modules)
    return Header(version, order, head[16], Part(end, following - end), Part(*maps[0]), modules, partial)


def _names(version: str, room: int) -> list[str]:
    """The names of the modules by their numbers in a log of this version."""
    names = [name for name in NUMBERS if all(name != added or version >= first for added, first in _ADDED)]
    return [*names, *(f"module {number}" for number in range(len(names), room))][:room]
