"""Python's dict: what one reaches for first.

It has open addressing over boxed integers, and a lookup makes a Python object of every query. It is compact and ordered since CPython
3.6, 2016.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass

import numpy as np

from .tables.map import Map

BLOCK = 1 << 20


@dataclass(frozen=True)
class DictTable:
    """A dict from Python integers to Python integers."""

    held: dict[int, int]
    value_dtype: np.dtype
    nbytes: int

    def get_many(self, queries: np.ndarray, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query."""
        asked = queries.tolist()
        if self.value_dtype.itemsize == 4:
            # No value is -1, so one pass tells both.
            got = np.fromiter(map(self.held.get, asked, itertools.repeat(-1)), np.int64, len(asked))
            found = got >= 0
            return np.where(found, got, default).astype(self.value_dtype), found
        plain = list(map(self.held.get, asked, itertools.repeat(-1)))
        found = np.fromiter((value != -1 for value in plain), np.bool_, len(plain))
        values = (value if value != -1 else default for value in plain)
        return np.fromiter(values, self.value_dtype, len(plain)), found


@dataclass(frozen=True)
class PythonDict(Map):
    """dict(zip(keys, values)) and dict.get."""

    bytes_per_entry = 200.0

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> DictTable:
        """Builds a dict, which chooses its own load. Its bytes are those of the dict and of the integers that it keeps alive."""
        held: dict[int, int] = {}
        for start in range(0, len(keys), BLOCK):
            # In blocks, so that no list of all keys stands beside the dict.
            held.update(zip(keys[start : start + BLOCK].tolist(), values[start : start + BLOCK].tolist()))
        boxed = _boxed(keys) + _boxed(values)
        return DictTable(held, values.dtype, sys.getsizeof(held) + boxed * len(held) // max(1, len(keys)))


def _boxed(numbers: np.ndarray) -> int:
    """Returns the bytes of Python integers; those up to 256 are shared by everybody and count nothing."""
    edges = [257, 1 << 30, 1 << 60]
    return sum(
        sys.getsizeof(low) * int(np.count_nonzero((numbers >= low) & (numbers <= min(high, int(np.iinfo(numbers.dtype).max)))))
        for low, high in zip(edges, [edges[1] - 1, edges[2] - 1, (1 << 64) - 1])
        if low <= np.iinfo(numbers.dtype).max
    )
