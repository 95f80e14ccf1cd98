"""The traced requests in a binary log.

file's number | rank | shared | name of the host, 64 bytes | writes | reads | then for each: offset | length | start | end (| thread)
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from armillary import memory
from armillary.errors import InputError

from .log import MOST_TIME, Segments
from .unpacking import Unpacked

_HEAD = "Qqq64sqq"
#: Bytes of one request in memory while the module is put together, and requests after which it is asked whether there is room.
_BYTES, _ASKED = 160, 1 << 20
#: Versions of each module, the first of them whose requests name their thread, and the first whose offsets mean something.
_VERSIONS = {"DXT_POSIX": (2, 2, 1), "DXT_MPIIO": (3, 3, 2)}


def read_traced(data: Unpacked, name: str, version: int, order: str, most: int, most_segments: int, processes: int) -> tuple[Segments, int]:
    """(all requests of a tracing module, how many records held them)."""
    last, with_thread, with_offset = _VERSIONS[name]
    if not 1 <= version <= last:
        raise InputError(f"found version {version} of the module {name}; expected 1 to {last}", where=data.where)
    fields = [("offset", order + "i8"), ("length", order + "i8"), ("start", order + "f8"), ("end", order + "f8")]
    kind = np.dtype([*fields, ("thread", order + "u8")] if version >= with_thread else fields)
    ids, ranks, counts, tables = list[int](), list[int](), list[int](), list[Any]()
    total, asked = 0, _ASKED
    while head := data.whole(struct.calcsize(order + _HEAD)):
        number, rank, _, _, writes, reads = struct.unpack(order + _HEAD, head)
        if not -1 <= rank < processes or min(writes, reads) < 0:
            raise InputError(
                f"found {writes} writes and {reads} reads of rank {rank} in {name}; expected counts, and a rank below {processes:,}",
                where=data.where,
            )
        total += writes + reads
        if total > most_segments:
            raise InputError(f"found more than {most_segments:,} traced requests; expected at most as many", where=data.where)
        if total >= asked:
            memory.require(_BYTES * total, data.what, where=data.where)
            asked = 2 * total
        if len(ids) >= most:
            raise InputError(f"found more than {most:,} records in {name}; expected at most as many", where=data.where)
        if writes + reads:
            table = data.whole(kind.itemsize * (writes + reads))
            if not table:
                raise data.damaged("ends within a record")
            tables.append(np.frombuffer(table, kind))
        ids.append(number)
        ranks.append(rank)
        counts += [writes, reads]
    rows = np.concatenate(tables) if tables else np.zeros(0, kind)
    offset = rows["offset"] if version >= with_offset else np.full(len(rows), -1, np.int64)
    late = ~((np.abs(rows["start"]) <= MOST_TIME) & (np.abs(rows["end"]) <= MOST_TIME))
    wrong = (rows["length"] < 0) | (offset < (0 if version >= with_offset else -1)) | late
    if wrong.any():
        raise InputError(f"found a request of {name} with a negative offset or length, or a time that is no number", where=data.where)
    pairs = np.array(counts, np.int64).reshape(-1, 2)
    each = pairs.sum(axis=1)
    # The writes of a record stand before its reads.
    wrote = np.repeat(np.tile([True, False], len(pairs)), pairs.reshape(-1))
    made = Segments(
        name, np.repeat(np.array(ids, np.uint64), each), np.repeat(np.array(ranks, np.int64), each), wrote, offset.astype(np.int64),
        rows["length"].astype(np.int64), rows["start"].astype(np.float64), rows["end"].astype(np.float64),
    )  # fmt: skip
    return made, len(ids)
