"""Rows of whole numbers, each distinct one stored once: a code per row instead of the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


class Interner:
    """Gives equal rows of `width` numbers equal codes, from 0 on in the order of their first appearance."""

    def __init__(self, width: int) -> None:
        self._rows = np.empty((256, width), np.int64)
        self._slots = np.full(1024, -1, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Numbers:
        """The distinct rows, by code."""
        return self._rows[: self._count]

    def codes(self, columns: Numbers) -> Codes:
        """The codes of rows that are given as columns (width, number of rows)."""
        columns = np.ascontiguousarray(columns)
        out = np.empty(columns.shape[1], np.int32)
        done = 0
        while done < len(out):
            done, self._count = _intern(columns, done, self._rows, self._count, self._slots, out)
            if done < len(out):
                self._grow()
        return out

    def _grow(self) -> None:
        self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._slots = np.full(4 * len(self._rows), -1, np.int32)
        _place(self._rows[: self._count], self._slots)


@loop
def _hash(row: Numbers) -> Any:
    value = np.uint64(1469598103934665603)
    for k in range(len(row)):
        value = (value ^ np.uint64(row[k])) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
    return value


@loop
def _place(rows: Numbers, slots: Codes) -> None:
    mask = np.uint64(len(slots) - 1)
    for code in range(len(rows)):
        at = _hash(rows[code]) & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = code


@loop
def _intern(columns: Numbers, first: int, rows: Numbers, count: int, slots: Codes, out: Codes) -> tuple[int, int]:
    """(row reached, distinct rows); it stops before a row for which there is no room. Invariant: a quarter of the slots is used at most."""
    width = rows.shape[1]
    mask = np.uint64(len(slots) - 1)
    row = np.empty(width, np.int64)
    last = np.int32(-1)
    for k in range(first, columns.shape[1]):
        for c in range(width):
            row[c] = columns[c, k]
        if last >= 0:
            same = True
            for c in range(width):
                if rows[last, c] != row[c]:
                    same = False
                    break
            if same:
                out[k] = last
                continue
        at = _hash(row) & mask
        while True:
            code = slots[at]
            if code < 0:
                if count == len(rows):
                    return k, count
                for c in range(width):
                    rows[count, c] = row[c]
                slots[at] = count
                code = np.int32(count)
                count += 1
                break
            same = True
            for c in range(width):
                if rows[code, c] != row[c]:
                    same = False
                    break
            if same:
                break
            at = (at + np.uint64(1)) & mask
        out[k] = code
        last = code
    return columns.shape[1], count
