"""Lustre's stripes in a binary log.

version 1: file's number | rank | targets and metadata targets of the file system | first target | stripe size | stripes | targets
version 2: file's number | rank | components | stripes | for each component 7 counters and the pool's name | targets of all components
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from armillary import memory
from armillary.errors import InputError

from .log import Stripes
from .stripes import MOST_COMPONENTS, MOST_OSTS, made
from .unpacking import Unpacked

_FIRST, _SECOND, _COMPONENT = "Q6q", "Qqqq", "7q16s"
#: Bytes of one target in memory, with what is needed to put them together, and targets after which it is asked whether there is room.
_BYTES, _ASKED = 120, 1 << 20


def read_stripes(data: Unpacked, version: int, order: str, most: int, processes: int) -> Stripes:
    """The stripes of every file and component."""
    if version not in (1, 2):
        raise InputError(f"found version {version} of the module LUSTRE; expected 1 or 2", where=data.where)
    rows: list[tuple[int, int, int, int, int, Sequence[int]]] = []
    held, asked = 0, _ASKED
    head = order + (_FIRST if version == 1 else _SECOND)
    while begin := data.whole(struct.calcsize(head)):
        number, rank, *rest = struct.unpack(head, begin)
        components, stripes = (1, rest[4]) if version == 1 else (rest[0], rest[1])
        if not 0 <= components <= MOST_COMPONENTS or not -1 <= stripes <= MOST_OSTS:
            found = f"found {components} components and {stripes} stripes of a file"
            raise InputError(f"{found}; expected at most {MOST_COMPONENTS} and {MOST_OSTS:,}", where=data.where)
        if not -1 <= rank < processes:
            raise InputError(f"found the rank {rank} of {processes:,} processes; expected -1 to {processes - 1}", where=data.where)
        shapes = [(rest[3], stripes)] if version == 1 else _shapes(data, order, components)
        targets = _targets(data, order, max(0, stripes))
        held += len(targets)
        if held >= asked:
            memory.require(2 * _BYTES * held, data.what, where=data.where)
            asked = 2 * held
        used = 0
        for i, (size, count) in enumerate(shapes, 1):
            if size == -1 and version == 2:
                break  # The rest was kept free and never used.
            # A component to which nothing was written yet has no targets.
            there = max(0, min(count, len(targets) - used))
            rows.append((number, rank, i, size, count, targets[used : used + there]))
            used += there
        if len(rows) > most:
            raise InputError(f"found more than {most:,} records in LUSTRE; expected at most as many", where=data.where)
    return made(rows)


def _shapes(data: Unpacked, order: str, components: int) -> list[tuple[int, int]]:
    """(stripe size, stripes) of each component of a file."""
    size = struct.calcsize(order + _COMPONENT)
    table = data.whole(components * size) if components else b""
    if len(table) < components * size:
        raise data.damaged("ends within a record")
    return [counters[:2] for counters in struct.iter_unpack(order + _COMPONENT, table)]


def _targets(data: Unpacked, order: str, stripes: int) -> tuple[int, ...]:
    table = data.whole(8 * stripes) if stripes else b""
    if len(table) < 8 * stripes:
        raise data.damaged("ends within a record")
    return struct.unpack(f"{order}{stripes}q", table)
