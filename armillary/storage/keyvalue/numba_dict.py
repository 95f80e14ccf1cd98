"""Numba's typed dictionary: CPython's design over unboxed numbers, callable from compiled loops.

numba.typed.Dict, released 2019. It is filled and asked inside one compiled loop each, with one search per lookup.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.np.numpy_support import from_dtype
from numba.typed import Dict

from armillary.kernels import loop

from .tables.map import Map


@dataclass(frozen=True)
class NumbaDictTable:
    """A typed dictionary."""

    held: Any
    value_dtype: np.dtype
    nbytes: int

    def get_many(self, queries: np.ndarray, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query."""
        out, found = np.empty(len(queries), self.value_dtype), np.empty(len(queries), np.bool_)
        _get_many(self.held, queries, self.value_dtype.type(default), out, found)
        return out, found


@dataclass(frozen=True)
class NumbaDict(Map):
    """numba.typed.Dict inside compiled loops."""

    bytes_per_entry = 90.0

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> NumbaDictTable:
        """Builds a typed dictionary, which chooses its own load.

        Its bytes are what glibc says was allocated meanwhile; elsewhere they are counted by its design.
        """
        before = allocated_bytes()
        held = Dict.empty(from_dtype(keys.dtype), from_dtype(values.dtype))
        _insert_many(held, keys, values)
        after = allocated_bytes()
        counted = before is not None and after is not None and after > before
        size = after - before if counted else dictionary_bytes(len(held), keys.itemsize, values.itemsize)  # type: ignore[operator]
        return NumbaDictTable(held, values.dtype, size)


class _Mallinfo2(ctypes.Structure):
    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


def allocated_bytes() -> int | None:
    """Returns the bytes in use from malloc by glibc's own count, or None where there is no such count."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    mallinfo2.restype = _Mallinfo2
    now = mallinfo2()
    return int(now.uordblks + now.hblkhd)


def dictionary_bytes(entries: int, key: int, value: int) -> int:
    """Returns the bytes of a typed dictionary that grew to this many entries; `key` and `value` are bytes of one each.

    It has 2^k indices, of which two thirds may be used and which grow to the power of two that holds three times the entries; an index
    is 1, 2, 4 or 8 bytes. An entry is a hash of 8 bytes, the key and the value, each in whole words.
    """
    size = 8
    while size * 2 // 3 < entries:
        size = 1 << (3 * (size * 2 // 3)).bit_length()
    index = next(width for width in (1, 2, 4, 8) if size <= 1 << (8 * width - 1))
    return size * index + (size * 2 // 3) * (8 + 8 * -(-key // 8) + 8 * -(-value // 8))


@loop
def _insert_many(held, keys, values):
    for i in range(len(keys)):
        held[keys[i]] = values[i]


@loop
def _get_many(held, queries, default, out, found):
    for i in range(len(queries)):
        value = held.get(queries[i])
        if value is None:
            out[i] = default
            found[i] = False
        else:
            out[i] = value
            found[i] = True
