"""The accesses of an engine to the device, as a list of (offset, length, kind).

A list is int64[n, 2] with the offset and `length | kind << 32`. Row 0 is its own counter, so kernels append without allocating. A kind
says whether bytes were read or written and whether a fence (flush and wait until durable) followed. Two further kinds are not accesses of
bytes: HINT asks the device for a granule and does not wait, and HANDOFF moves the operation to the handler whose number is in the offset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...queue import part

READ, WRITE, FENCE, HINT, HANDOFF = 0, 1, 2, 4, 8
LENGTH = 0xFFFFFFFF


@dataclass(frozen=True)
class Access:
    """One access: `offset` and `length` in bytes, "read" or "write", and whether a fence follows."""

    offset: int
    length: int
    kind: str
    fence: bool


def empty(rows: int) -> np.ndarray:
    """Makes a list with room for `rows` accesses."""
    return np.zeros((rows + 1, 2), np.int64)


def listed(accesses: np.ndarray, first: int = 0, last: int | None = None) -> list[Access]:
    """Returns the accesses of bytes in a list, from number `first` to before `last`."""
    rows = accesses[1 + first : 1 + (int(accesses[0, 0]) if last is None else last)]
    found = []
    for offset, word in rows.tolist():
        kind = word >> 32
        if kind < HINT:
            found.append(Access(offset, word & LENGTH, "write" if kind & WRITE else "read", bool(kind & FENCE)))
    return found


def granules(accesses: list[Access], granule: int) -> set[int]:
    """Returns the granules that these accesses touch."""
    return {g for a in accesses for g in range(a.offset // granule, (a.offset + a.length - 1) // granule + 1)}


@part
def emit(accesses, offset, length, kind):
    """Appends an access; a full list drops it, so whoever needs all of them looks for room before an operation."""
    n = accesses[0, 0] + 1
    if n >= len(accesses):
        return
    accesses[n, 0] = offset
    accesses[n, 1] = length | (kind << 32)
    accesses[0, 0] = n


@part
def fence_last(accesses):
    """Puts a fence behind the last access."""
    accesses[accesses[0, 0], 1] |= np.int64(FENCE) << 32
