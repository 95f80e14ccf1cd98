"""Traces of writes: tables of extents with fingerprints, and SNIA's FIU IODedup text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, Table, read_lines, read_table

from ..relocation.similarity import Rows
from ..workload import NVME, Devices, Updates, Workload
from .fingerprints import HEX, Numbered

COLUMNS = (
    Column("time", "time", not_decreasing=True), Column("client", "str"), Column("file", "str"),
    Column("offset", "int", unit="bytes", least=0, most=1 << 62), Column("length", "int", unit="bytes", least=1, most=1 << 30),
    Column("fingerprint", "str"),
)  # fmt: skip
_ROWS = 200_000_000
FIU_BLOCK, FIU_EXTENT = 4096, 1 << 20
#: (row, file, offset, length, fingerprint)
Write = tuple[int, str, int, int, bytes]
#: The error for a row: `error(row, message)`.
Error = Callable[[int, str], InputError]


def read_trace(path: str | os.PathLike[str], *, chunk: int = 16384, devices: Devices = NVME) -> Workload:
    """Reads writes from a table (CSV, JSON lines or Parquet) with columns time, client, file, offset, length, fingerprint (hex).

    The first write of a file's extent creates it, and a later one of the same extent is an update. Extents that overlap in another way
    are refused.
    """
    table = read_table(Path(path), COLUMNS, row_limit=_ROWS)
    return _from_writes(_table_rows(table), table.error, chunk, devices)


def read_fiu(path: str | os.PathLike[str], *, devices: Devices = NVME) -> Workload:
    """Reads SNIA's FIU IODedup text `ts_ns pid process lba size_512 W|R major minor md5`, of which the writes of 4 KiB blocks count.

    The 1 MiB of addresses in which one process writes is taken as a file.
    """

    def error(line: int, message: str) -> InputError:
        return InputError(message, where=f"{path}:{line}")

    return _from_writes(_fiu_rows(Path(path), error), error, FIU_BLOCK, devices)


def _table_rows(table: Table) -> Iterator[Write]:
    columns = (table[name].tolist() for name in ("file", "offset", "length", "fingerprint"))
    digits = None
    for row, (file, offset, length, name) in enumerate(zip(*columns, strict=True)):
        found = _fingerprint(name, digits)
        if isinstance(found, str):
            raise table.error(row, found, "fingerprint")
        digits = len(name)
        yield row, file, offset, length, found


def _fiu_rows(path: Path, error: Error) -> Iterator[Write]:
    for line, text in read_lines(path, limit=None, longest=4096):
        words = text.split()
        if not words:
            continue
        if len(words) != 9 or words[5] not in ("W", "R"):
            raise error(line, f"found {one_line(' '.join(words), 80)}; expected ts pid process lba size W|R major minor md5")
        if not (words[3].isascii() and words[3].isdecimal()) or len(words[3]) > 15 or words[4] != "8":
            raise error(line, f"found block {words[3]} of {words[4]} sectors; expected a number, and 8 sectors")
        name = _fingerprint(words[8], 32)
        if isinstance(name, str):
            raise error(line, name)
        if words[5] == "W":
            extent, offset = divmod(512 * int(words[3]), FIU_EXTENT)
            yield line, f"{words[2]}@{extent}", offset, FIU_BLOCK, name


def _fingerprint(text: str, digits: int | None) -> bytes | str:
    """A fingerprint's bytes, or what is wrong with it; `digits` is the length of those before it."""
    if len(text) % 2 or not HEX.issuperset(text.lower()) or not 8 <= len(text) <= 128 or digits not in (None, len(text)):
        wanted = f"{digits} hex digits" if digits is not None else "8 to 128 hex digits"
        return f'found "{one_line(text, 60)}"; expected {wanted}'
    return bytes.fromhex(text)


def _from_writes(rows: Iterable[Write], error: Error, chunk: int, devices: Devices) -> Workload:
    """Makes files of extents; their first writes are the stream, and everything that is written again is one round of updates."""
    numbered = Numbered()
    #: file to offset to (length, chunk, place in the stream, row).
    files: dict[str, dict[int, tuple[int, int, int, int]]] = {}
    again: list[tuple[str, int, int]] = []
    count = 0
    for row, file, offset, length, name in rows:
        try:
            number = numbered.number(name, length)
        except ValueError as fault:
            raise error(row, str(fault)) from None
        extents = files.setdefault(file, {})
        known = extents.get(offset)
        if known is None:
            extents[offset] = (length, number, count, row)
            count += 1
        elif known[0] == length:
            again.append((file, offset, number))
        else:
            raise error(row, f"found {length} bytes at {offset} over an extent of {known[0]}; expected extents that do not overlap")
    starts: list[int] = [0]
    values: list[int] = []
    order: list[int] = []
    place: dict[tuple[str, int], int] = {}
    for file, extents in files.items():
        reach, before = 0, 0
        for offset, (length, number, when, row) in sorted(extents.items()):
            if offset < reach:
                other = error(before, "").where
                raise error(row, f"found bytes from {offset} on over an extent that ends at {reach} ({other}); expected no overlap")
            reach, before = offset + length, row
            place[file, offset] = len(values)
            values.append(number)
            order.append(when)
        starts.append(len(values))
    stream = np.argsort(np.array(order, np.int64), kind="stable")
    work = Workload(
        Rows(np.array(starts, np.int64), np.array(values, np.int32)), np.array(numbered.sizes, np.int64), stream, chunk,
        devices=devices, names=tuple(files),
    )  # fmt: skip
    if not again:
        return work
    refs = np.array([place[file, offset] for file, offset, _ in again], np.int64)
    return replace(work, updates=(Updates(refs, np.array([number for _, _, number in again], np.int64)),))
