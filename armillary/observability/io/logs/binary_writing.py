"""Writes a log as a binary Darshan log of version 3.41, for programs that read nothing else, such as Drishti.

The header names where each part lies, and each part is packed. Records have the layouts of their modules' newest versions, but for traced
requests: the library of Darshan 3.5.0 does not read those that name a thread, so they are written only when they are asked for.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .header import BZIP2, MAGIC, PLAIN, ZLIB
from .layouts import Layout, layout_of, versions_of
from .log import Log, Module, Segments, Stripes
from .modules import COUNTED, NUMBERS, TRACED

VERSION = b"3.41"
MODULES = 64
#: Bytes of the job's metadata, and of the executable with the mounts.
_METADATA, _EXECUTABLE = 1024, 3016
_PACK: dict[int, Callable[[bytes], bytes]] = {ZLIB: zlib.compress, BZIP2: bz2.compress, PLAIN: bytes}


def write_binary_log(log: Log, path: Path, *, order: str = "<", packing: int = ZLIB, threads: bool = False) -> None:
    """Writes the job, the names, the counters, the stripes and the traced requests of a log, in the given byte order and packing.

    With `threads`, traced requests have the newest layout, which has room for the number of a thread.
    """
    parts: dict[str, tuple[bytes, int]] = {}
    for name in COUNTED:
        if name in log.modules and len(log.modules[name]):
            version = max(versions_of(name))
            layout = layout_of(name, version)
            assert layout is not None
            parts[name] = _module(log.modules[name], layout, order), version
    if log.stripes is not None and len(log.stripes):
        parts["LUSTRE"] = _stripes(log.stripes, order), 2
    for name, version in zip(TRACED, (2, 3) if threads else (1, 2)):
        if name in log.segments and len(log.segments[name]):
            parts[name] = _traced(log.segments[name], order, threads), version
    pack = _PACK[packing]
    job = pack(_job(log, order))
    names = pack(b"".join(struct.pack(order + "Q", number) + name.encode() + b"\0" for number, name in log.names.items()))
    begin = 32 + 16 * (MODULES + 1) + 4 * MODULES
    at = begin + len(job)
    header = bytearray(begin)
    flags = sum(1 << NUMBERS.index(name) for name in log.partial if name in parts)
    struct.pack_into(f"{order}8sqB7xQ", header, 0, VERSION, MAGIC, packing, flags)
    struct.pack_into(f"{order}QQ", header, 32, at, len(names))
    body = [job, names]
    at += len(names)
    for name, (part, version) in sorted(parts.items(), key=lambda item: NUMBERS.index(item[0])):
        packed, number = pack(part), NUMBERS.index(name)
        struct.pack_into(f"{order}QQ", header, 48 + 16 * number, at, len(packed))
        struct.pack_into(f"{order}I", header, 48 + 16 * MODULES + 4 * number, version)
        body.append(packed)
        at += len(packed)
    path.write_bytes(bytes(header) + b"".join(body))


def _job(log: Log, order: str) -> bytes:
    metadata = "".join(f"{key}={value}\n" for key, value in log.metadata.items()).encode()[: _METADATA - 1]
    number = int(log.job) if log.job.isdigit() and len(log.job) < 19 else 0
    whole, part = divmod(log.run_time_s, 1.0)
    end = log.start_time_s + int(whole)
    facts = struct.pack(f"{order}7q", 1000, log.start_time_s, 0, end, int(1e9 * part), log.processes, number)
    executable = log.executable + "".join(f"\n{kind}\t{place}" for place, kind in log.mounts)
    return facts + metadata.ljust(_METADATA, b"\0") + executable.encode()[: _EXECUTABLE - 1].ljust(_EXECUTABLE, b"\0")


def _module(module: Module, layout: Layout, order: str) -> bytes:
    rows: Any = np.zeros(len(module), layout.record(order))
    rows["id"], rows["rank"] = module.ids, module.ranks
    for part, columns in (("whole", layout.whole), ("real", layout.real)):
        for i, name in enumerate(columns):
            rows[part][:, i] = module.column(name)
    return bytes(rows.tobytes())


def _stripes(stripes: Stripes, order: str) -> bytes:
    made, row = [], 0
    while row < len(stripes):
        number, rank, first = int(stripes.ids[row]), int(stripes.ranks[row]), row
        while row < len(stripes) and (int(stripes.ids[row]), int(stripes.ranks[row])) == (number, rank):
            row += 1
        components = range(first, row)
        osts = np.concatenate([stripes.of(i) for i in components])
        made.append(struct.pack(f"{order}Qqqq", number, rank, len(components), len(osts)))
        for i in components:
            counters = (int(stripes.size[i]), len(stripes.of(i)), 0, 0, 0, -1, 0)
            made.append(struct.pack(f"{order}7q16s", *counters, b""))
        made.append(osts.astype(order + "i8").tobytes())
    return b"".join(made)


def _traced(part: Segments, order: str, threads: bool) -> bytes:
    """Requests by file and rank, the writes of each before the reads, as Darshan keeps them."""
    kind = [("offset", order + "i8"), ("length", order + "i8"), ("start", order + "f8"), ("end", order + "f8")]
    kind += [("thread", order + "u8")] if threads else []
    rows: Any = np.zeros(len(part), kind)
    rows["offset"], rows["length"], rows["start"], rows["end"] = part.offset, part.length, part.start_s, part.end_s
    at = np.lexsort((np.arange(len(part)), ~part.wrote, part.ranks, part.ids))
    ids, ranks = part.ids[at], part.ranks[at]
    new = np.flatnonzero(np.concatenate([[True], (ids[1:] != ids[:-1]) | (ranks[1:] != ranks[:-1])]))
    made = []
    for begin, end in zip(new.tolist(), [*new.tolist()[1:], len(part)]):
        mine = at[begin:end]
        writes = int(part.wrote[mine].sum())
        made.append(struct.pack(f"{order}Qqq64sqq", int(ids[begin]), int(ranks[begin]), 0, b"node", writes, len(mine) - writes))
        made.append(rows[mine].tobytes())
    return b"".join(made)
