"""Reads binary Darshan logs of every version from 3.00 to 3.41, of either byte order, packed by zlib, by bzip2 or not at all.

The header says where the parts of the log lie. The first describes the job, the second gives the names of files, and then each module has
one with its records. A part is unpacked only as far as the records that are wanted, every count in it is checked against what is there
before memory is taken, and records that cannot be are refused.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from armillary.errors import InputError
from armillary.files import open_file

from .binary_stripes import read_stripes
from .binary_traces import read_traced
from .header import HEADER_BYTES, Header, Part, is_binary, read_header
from .layouts import layout_of, versions_of
from .log import MOST_RECORDS, MOST_SEGMENTS, MOST_TIME, Log, Module, Segments, Stripes
from .modules import COUNTED, COUNTERS, LEFT, TRACED, is_float
from .unpacking import Unpacked

#: Bytes of a log, of a name, and of all names per record.
MOST_FILE, MOST_NAME, NAME_BYTES = 4 << 30, 4096, 64
#: Bytes that describe the job, and how many of them are its metadata.
_JOB, _METADATA = 4096, 1024


def read_binary_log(path: Path, *, most_records: int = MOST_RECORDS, most_segments: int = MOST_SEGMENTS) -> Log:
    """The log in a binary file of Darshan, which may be packed as a whole by gzip or Zstandard, too."""
    with open_file(path, unpack=False, limit=MOST_FILE) as plain:
        if is_binary(plain.read(HEADER_BYTES)):
            return _read(plain, path, most_records, most_segments)
    with open_file(path, limit=MOST_FILE, seekable=True) as unpacked:
        return _read(unpacked, path, most_records, most_segments)


def _read(file: BinaryIO, path: Path, most_records: int, most_segments: int) -> Log:
    where = str(path)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header = read_header(file.read(HEADER_BYTES), size, where)

    def part(which: Part, what: str) -> Unpacked:
        return Unpacked(file, which, header.packing, what, where)

    job = _job(part(header.job, "the description of the job"), header, where)
    processes = int(job["processes"])
    names = _names(part(header.names, "the names of files"), header, 2 * most_records + 1_000)
    left, requests = most_records, most_segments
    modules: dict[str, Module] = {}
    segments: dict[str, Segments] = {}
    stripes: Stripes | None = None
    partial = list(header.partial)
    for name, place in header.modules.items():
        data = part(place, f"the module {name}")
        if name in COUNTED:
            modules[name], mixed = _counters(data, name, place.version, header, left, processes)
            left -= len(modules[name])
            partial += [name] if mixed and name not in partial else []
        elif name in TRACED:
            segments[name], records = read_traced(data, name, place.version, header.order, left, requests, processes)
            left, requests = left - records, requests - len(segments[name])
        elif name == "LUSTRE":
            stripes = read_stripes(data, place.version, header.order, left, processes)
            left -= len(stripes)
    return Log(
        name=path.name, version=header.version, modules=modules, stripes=stripes, segments=segments, names=names,
        left=tuple(name for name in header.modules if name in LEFT or name.startswith("module ")), partial=tuple(partial), **job,
    )  # fmt: skip


def _job(data: Unpacked, header: Header, where: str) -> dict[str, Any]:
    """Who ran, when, and on which file systems."""
    fine = header.version >= "3.41"
    form = f"{header.order}{7 if fine else 5}q"
    text = data.read(_JOB)
    if len(text) < struct.calcsize(form) + _METADATA:
        raise data.damaged(f"has {len(text):,} bytes")
    numbers = struct.unpack_from(form, text)
    if fine:
        _, start, start_ns, end, end_ns, processes, job = numbers
        # Seconds are subtracted as whole numbers, which are exact where floats of this size are not.
        run_time = (end - start) + (end_ns - start_ns) / 1e9
    else:
        _, start, end, processes, job = numbers
        run_time = float(end - start + 1)
    if not 1 <= processes < 1 << 31:
        raise InputError(f"found {processes:,} processes; expected 1 to {(1 << 31) - 1:,}", where=where)
    if not 0 <= run_time <= 1e12:
        raise InputError(f"found a run time of {run_time:g} s; expected 0 or more", where=where)
    rest = text[struct.calcsize(form) :]
    metadata = rest[:_METADATA].partition(b"\0")[0].decode("utf-8", "replace")
    executable, *mounts = rest[_METADATA:].partition(b"\0")[0].decode("utf-8", "replace").split("\n")
    pairs = [line.split(None, 1) for line in mounts]
    return {
        "executable": executable, "job": str(job), "processes": processes, "run_time_s": run_time, "start_time_s": max(0, start),
        "metadata": dict(line.split("=", 1) for line in metadata.split("\n") if "=" in line),
        "mounts": tuple((pair[1].strip(), pair[0]) for pair in pairs if len(pair) == 2),
    }  # fmt: skip


def _names(data: Unpacked, header: Header, most: int) -> dict[int, str]:
    """The names of files by their numbers; version 3.00 puts a name's length before it, later ones a zero behind it."""
    whole = data.read(most * NAME_BYTES + MOST_NAME)
    found: dict[int, str] = {}
    form, at = header.order + "Q", 0
    while at < len(whole):
        if len(whole) - at < 8:
            raise data.damaged("end within a name")
        number = struct.unpack_from(form, whole, at)[0]
        if header.version == "3.00":
            length = struct.unpack_from(header.order + "I", whole, at + 8)[0] if len(whole) - at >= 12 else len(whole)
            begin, end, following = at + 12, at + 12 + length, at + 12 + length
        else:
            begin, end = at + 8, whole.find(b"\0", at + 8)
            following = end + 1
        if end < 0 or end > len(whole):
            raise data.damaged("end within a name")
        # An empty name may be followed by the real one of the same file.
        if not found.get(number):
            found[number] = whole[begin:end].decode("utf-8", "replace")
            if len(found) > most:
                raise InputError(f"found more than {most:,} names of files; expected at most as many", where=data.where)
        at = following
    if data.read(1):
        raise InputError(f"found more than {len(whole):,} bytes of names; expected at most as many", where=data.where)
    return found


def _counters(data: Unpacked, name: str, version: int, header: Header, most: int, processes: int) -> tuple[Module, bool]:
    """(the records of a counting module, whether some were left out because they mix two modules)."""
    layout = layout_of(name, version)
    if layout is None:
        known = " or ".join(map(str, versions_of(name)))
        raise InputError(f"found version {version} of the module {name}; expected {known}", where=data.where)
    table = data.read(layout.size * (most + 1))
    rows = np.frombuffer(table, layout.record(header.order), len(table) // layout.size)
    if len(rows) > most:
        raise InputError(f"found more records than are wanted, {most:,} of them in {name}; expected at most as many", where=data.where)
    if len(table) % layout.size:
        raise data.damaged(f"ends within a record of {layout.size} bytes")
    mixed = False
    if layout.mixed:
        alone = rows["whole"][:, layout.whole.index(layout.mixed)] <= 0
        mixed, rows = not alone.all(), rows[alone]
    check_ranks(rows["rank"], processes, data.where)
    if not (np.abs(rows["real"]) <= MOST_TIME).all():
        raise InputError(f"found a time of {name} that is no number of seconds; expected seconds", where=data.where)
    columns = {counter: np.ascontiguousarray(rows["whole"][:, i], np.int64) for i, counter in enumerate(layout.whole)}
    columns |= {counter: np.ascontiguousarray(rows["real"][:, i], np.float64) for i, counter in enumerate(layout.real)}
    for counter, parts in layout.sums.items():
        columns[counter] = np.sum([np.minimum(np.maximum(columns[one], 0), 1 << 60) for one in parts], axis=0)
    counters = _newest(name, columns, len(rows))
    partial = name in header.partial or mixed
    return Module(name, rows["id"].astype(np.uint64), rows["rank"].astype(np.int64), counters, partial, version), mixed


def _newest(module: str, columns: dict[str, Any], rows: int) -> dict[str, Any]:
    """All counters of the newest version; those that the log's version lacks were not monitored."""
    made = {}
    for counter in COUNTERS[module]:
        if counter in columns:
            made[counter] = columns[counter]
        elif is_float(counter):
            made[counter] = np.full(rows, -1.0)
        else:
            # The number of a file cannot be -1, so that of a renamed one is 0.
            made[counter] = np.full(rows, 0 if counter.endswith("RENAMED_FROM") else -1, np.int64)
    return made


def check_ranks(ranks: Any, processes: int, where: str) -> None:
    """Refuses ranks that the job does not have."""
    wrong = ranks[(ranks < -1) | (ranks >= processes)]
    if len(wrong):
        raise InputError(f"found the rank {int(wrong[0])} of {processes:,} processes; expected -1 to {processes - 1}", where=where)
