"""oracleGeneral, the binary format of libCacheSim: 24 bytes per request, little-endian, packed.

`u32 time_s, u64 id, u32 size, i64 next_access`; next_access is the number (from 1) of the next request for the same id, -1 for
none. Some writers count from 0. It is used only when a prefix of the file confirms it, and only until a request
contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from ..workload import MOST_BYTES, NEVER, from_ids
from .requests import Requests
from .stream import pieces

RECORD = np.dtype([("time_s", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next_access", "<i8")])
#: Requests whose promised next accesses are checked before any is believed.
PREFIX = 2**16
assert RECORD.itemsize == 24
assert MOST_BYTES > 2**32


def check_length(path: Path, length: int) -> None:
    """An error unless `length` bytes are whole records."""
    if length % RECORD.itemsize:
        whole, rest = divmod(length, RECORD.itemsize)
        raise InputError(f"found {length} bytes, {rest} after record {whole}; expected a multiple of {RECORD.itemsize}", where=str(path))


def requests(path: Path, counts_from: int | None) -> Iterator[Requests]:
    """The requests of a file; `counts_from` as `counting` found it."""
    for records in _records(path):
        promised = None if counts_from is None else _promised(records["next_access"], counts_from)
        yield Requests(records["id"].copy(), sizes=records["size"].astype(np.int64), promised=promised)


def counting(path: Path) -> int | None:
    """Whether next_access counts requests from 0 or from 1; None when the first `PREFIX` records confirm neither."""
    parts, have = [], 0
    for records in _records(path):
        parts.append(records)
        have += len(records)
        if have >= PREFIX:
            break
    if not parts:
        return None
    prefix = np.concatenate(parts)[:PREFIX]
    trace = from_ids(prefix["id"], name=str(path))
    actual = trace.next_access()
    within = actual < len(trace)
    if not within.any():
        return None
    for start in (1, 0):
        promised = _promised(prefix["next_access"], start)
        if (promised[within] == actual[within]).all() and (promised[~within] >= len(trace)).all():
            return start
    return None


def _promised(stored: np.ndarray, counts_from: int) -> np.ndarray:
    return np.where(stored == -1, NEVER, stored - counts_from)


def _records(path: Path) -> Iterator[np.ndarray]:
    rest = b""
    length = 0
    for piece in pieces(path):
        length += len(piece)
        piece = rest + piece
        whole = len(piece) // RECORD.itemsize
        if whole:
            yield np.frombuffer(piece, RECORD, whole)
        rest = piece[whole * RECORD.itemsize :]
    check_length(path, length)


class Promises:
    """Checks that each next request for an object comes when the last one promised."""

    def __init__(self) -> None:
        #: Whether every promise so far was kept.
        self.kept = True
        self._due = np.empty(0, np.int64)
        self._done = 0

    def check(self, objects: np.ndarray, promised: np.ndarray, distinct: int) -> None:
        """Takes the next requests into account."""
        if distinct > len(self._due):
            longer = np.full(max(distinct, 2 * len(self._due)), -1, np.int64)
            longer[: len(self._due)] = self._due
            self._due = longer
        self.kept = self.kept and _kept(objects, promised, self._due, self._done)
        self._done += len(objects)


@loop
def _kept(objects, promised, due, start):
    # due[object] is the promised index of its next request, -1 before its first.
    for i in range(len(objects)):
        if promised[i] <= start + i or (due[objects[i]] != -1 and due[objects[i]] != start + i):
            return False
        due[objects[i]] = promised[i]
    return True
