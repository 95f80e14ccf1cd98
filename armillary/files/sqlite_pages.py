"""Whole numbers of a table of a SQLite file, read page by page in compiled loops, many times faster than as Python objects.

A table is a tree of pages. Interior pages hold the numbers of other pages, and leaves hold rows, each a header with the type of every value
and the values themselves, in big-endian order. Every page number, offset, length and type in the file is checked before it is followed.
The format is described at sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop, part

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

#: What stands for NULL among whole numbers.
NULL = -(1 << 63)
#: A tree of pages of 512 bytes with 2^31 pages is less deep than this.
_DEPTH = 24
#: Bytes of pages that are read at once.
_PIECE = 1 << 22
#: Bytes of a page that a row takes at least: SQLite gives it four, and its place takes two.
_ROW_BYTES = 6
_INTERIOR, _LEAF = 5, 13
#: How the loop over leaves ended.
_DONE, _DAMAGED, _SPILLED, _NO_NUMBER = 0, 1, 2, 3


class Spilled(Exception):
    """A row is so long that a wanted value stands on another page, which this reader does not follow."""


def leaves(file: int, root: int, page_size: int, pages: int, usable: int, where: str) -> Numbers:
    """The numbers of the leaf pages of the tree at page `root`, in the order of the rows."""
    level = np.array([root], np.int64)
    for _ in range(_DEPTH):
        if level.min() < 2 or level.max() > pages:
            raise InputError("found a page number that is outside of the file; expected a whole SQLite file", where=where)
        if len(level) > 1 and len(np.unique(level)) < len(level):
            raise InputError("found a page twice in one table; expected a whole SQLite file", where=where)
        if _types(file, level[:1], page_size)[0] == _LEAF:
            return level
        parts, total, batch = [], 0, _PIECE // page_size
        for begin in range(0, len(level), batch):
            data = read_pages(file, level[begin : begin + batch], page_size, where)
            found, fine = _children(data, page_size, usable)
            total += len(found)
            if not fine or total > pages:
                raise InputError("found a damaged page in a table; expected a whole SQLite file", where=where)
            parts.append(found)
        level = np.concatenate(parts)
    raise InputError("found a table nested deeper than any file needs; expected a whole SQLite file", where=where)


def numbers(
    file: int, pages: Numbers, page_size: int, usable: int, wanted: Numbers, slots: int, rowid_slot: int, where: str
) -> Iterator[Numbers]:
    """Rows of leaf pages in chunks, as arrays (slot, row); NULL is `NULL`.

    wanted: for each column of the table, the slot that its value goes to, or -1. rowid_slot: where the row's number goes, or -1.
    """
    before, batch = 0, _PIECE // page_size
    for begin in range(0, len(pages), batch):
        data = read_pages(file, pages[begin : begin + batch], page_size, where)
        cells = _count(data, page_size)
        if cells < 0:
            raise InputError("found a damaged page in a table; expected a whole SQLite file", where=where)
        out = np.empty((slots, cells), np.int64)
        row, column, status = _rows(data, page_size, usable, wanted, rowid_slot, out)
        if status == _SPILLED:
            raise Spilled
        if status == _NO_NUMBER:
            raise InputError(f"row {before + row + 1}: found a value in column {column + 1} that is no whole number", where=where)
        if status == _DAMAGED:
            raise InputError(f"row {before + row + 1}: found damaged data; expected a whole SQLite file", where=where)
        before += cells
        yield out


def read_pages(file: int, pages: Numbers, page_size: int, where: str) -> Bytes:
    """The bytes of pages, in the order given; neighbours are read at once."""
    out = np.empty(len(pages) * page_size, np.uint8)
    view = out.data
    breaks = np.flatnonzero(np.diff(pages) != 1) + 1
    bounds = [0, *breaks.tolist(), len(pages)]
    for first, last in itertools.pairwise(bounds):
        begin, end, offset = first * page_size, last * page_size, (int(pages[first]) - 1) * page_size
        while begin < end:
            got = os.preadv(file, [view[begin:end]], offset)
            if not got:
                raise InputError("found the end of the file within a table; expected a whole SQLite file", where=where)
            begin, offset = begin + got, offset + got
    return out


def _types(file: int, pages: Numbers, page_size: int) -> list[int]:
    return [(os.pread(file, 1, (int(page) - 1) * page_size) or b"\0")[0] for page in pages]


@part
def _two(data: Bytes, at: int) -> Any:
    return (np.int64(data[at]) << 8) | np.int64(data[at + 1])


@loop
def _children(data: Bytes, page_size: int, usable: int) -> tuple[Numbers, bool]:
    """The page numbers in interior pages, and whether all of these pages are sound."""
    pages = len(data) // page_size
    total = 0
    for page in range(pages):
        at = page * page_size
        if data[at] != _INTERIOR or 12 + _ROW_BYTES * _two(data, at + 3) > usable:
            return np.empty(0, np.int64), False
        total += _two(data, at + 3) + 1
    out = np.empty(total, np.int64)
    k = 0
    for page in range(pages):
        at = page * page_size
        for cell in range(_two(data, at + 3) + 1):
            place = at + 8
            if cell < _two(data, at + 3):
                offset = _two(data, at + 12 + 2 * cell)
                if offset + 4 > usable:
                    return out[:0], False
                place = at + offset
            out[k] = (np.int64(_two(data, place)) << 16) | _two(data, place + 2)
            k += 1
    return out, True


@loop
def _count(data: Bytes, page_size: int) -> Any:
    """The number of rows in leaf pages, or -1 where one is no leaf or has no room for its rows."""
    total = np.int64(0)
    for at in range(0, len(data), page_size):
        cells = _two(data, at + 3)
        if data[at] != _LEAF or 8 + _ROW_BYTES * cells > page_size:
            return -1
        total += cells
    return total


@loop
def _varint(data: Bytes, at: int, end: int) -> Any:
    """(value, place after it) of a variable-length number; the place is -1 where it does not end before `end`."""
    value = np.int64(0)
    for k in range(9):
        if at + k >= end:
            return np.int64(0), np.int64(-1)
        byte = np.int64(data[at + k])
        if k == 8:
            return (value << 8) | byte, np.int64(at + 9)
        value = (value << 7) | (byte & 127)
        if byte < 128:
            return value, np.int64(at + k + 1)
    return np.int64(0), np.int64(-1)


@loop
def _rows(data: Bytes, page_size: int, usable: int, wanted: Numbers, rowid_slot: int, out: Numbers) -> Any:
    """Fills `out`; returns (row, column, how it ended). Invariant: nothing is read outside of a row's own part of its page."""
    sizes = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0], np.int64)
    as_float = np.empty(1, np.float64)
    bits = as_float.view(np.int64)
    most = np.int64(usable - 35)
    least = np.int64((usable - 12) * 32 // 255 - 23)
    last: Any = np.int64(-1)
    for column in range(len(wanted)):
        if wanted[column] >= 0:
            last = column
    row = np.int64(0)
    for page in range(0, len(data), page_size):
        page_end = np.int64(page + usable)
        for cell in range(_two(data, page + 3)):
            at = page + _two(data, page + 8 + 2 * cell)
            payload, at = _varint(data, at, page_end)
            if at < 0 or payload < 0:
                return row, 0, _DAMAGED
            rowid, at = _varint(data, at, page_end)
            if at < 0:
                return row, 0, _DAMAGED
            local = np.int64(payload)
            if payload > most:
                local = least + (payload - least) % (usable - 4)
                if local > most:
                    local = least
            if local > page_end - at:
                return row, 0, _DAMAGED
            whole = local == payload
            begin, end = np.int64(at), np.int64(at + local)
            if rowid_slot >= 0:
                out[rowid_slot, row] = rowid
            size, at = _varint(data, begin, end)
            if at < 0 or size < at - begin or size > payload:
                return row, 0, _DAMAGED
            if size > local:
                return row, 0, _SPILLED
            head_end, place = begin + size, begin + size
            for column in range(last + 1):
                kind = np.int64(0)
                if at < head_end:
                    kind, at = _varint(data, at, head_end)
                    if at < 0 or kind < 0 or kind == 10 or kind == 11:
                        return row, column, _DAMAGED
                if kind >= 12:
                    length = (kind - 12) >> 1
                else:
                    length = sizes[kind]
                if length > end - place:
                    if whole:
                        return row, column, _DAMAGED
                    if wanted[column] >= 0:
                        return row, column, _SPILLED
                    # What comes after a long value stands on other pages.
                    place = end
                    for later in range(column + 1, last + 1):
                        if wanted[later] >= 0:
                            return row, later, _SPILLED
                    break
                if wanted[column] >= 0:
                    value = np.int64(NULL)
                    if kind == 8 or kind == 9:
                        value = kind - 8
                    elif 1 <= kind <= 6:
                        value = np.int64(np.int8(data[place]))
                        for k in range(1, length):
                            value = (value << 8) | np.int64(data[place + k])
                    elif kind == 7:
                        packed = np.int64(0)
                        for k in range(8):
                            packed = (packed << 8) | np.int64(data[place + k])
                        bits[0] = packed
                        if not (-9.2e18 < as_float[0] < 9.2e18):
                            return row, column, _NO_NUMBER
                        value = np.int64(as_float[0])
                    elif kind >= 12:
                        return row, column, _NO_NUMBER
                    out[wanted[column], row] = value
                place += length
            row += 1
    return row, 0, _DONE


def warm_up() -> None:
    """Compiles the loops with an empty page."""
    page: Any = np.zeros(512, np.uint8)
    page[0] = _LEAF
    _rows(page, 512, 512, np.zeros(1, np.int64), -1, np.empty((1, 0), np.int64))
    _count(page, 512)
    _children(page, 512, 512)
