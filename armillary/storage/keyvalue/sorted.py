"""A sorted array and binary search: no empty slots, no hashing, log2(n) dependent reads per lookup.

This is what NumPy users do with `searchsorted`. Bisection is in Knuth, The Art of Computer Programming, volume 3, 1973.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tables.buckets import touch
from .tables.map import Map
from .tables.probe import LINE, kernel


@dataclass(frozen=True)
class SortedTable:
    """Keys in order and their values."""

    keys: np.ndarray
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return int(self.keys.nbytes + self.values.nbytes)

    def get_many(self, queries: np.ndarray, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query; of equal keys the last counts."""
        if not len(self.keys):
            return np.full(len(queries), default, self.values.dtype), np.zeros(len(queries), np.bool_)
        at = np.searchsorted(self.keys, queries, side="right") - 1
        found = (at >= 0) & (self.keys[at] == queries)
        return np.where(found, self.values[at], self.values.dtype.type(default)), found

    def mean_lines(self, queries: np.ndarray) -> float:
        """Returns the mean number of distinct 64-byte lines that a bisection reads, values included."""
        return _count_lines(self.keys, queries, np.zeros(128, np.int64)) / max(1, len(queries))


@dataclass(frozen=True)
class Sorted(Map):
    """numpy.sort and numpy.searchsorted."""

    bytes_per_entry = 24.0

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> SortedTable:
        """Builds both arrays in the order of the keys; there is no load to choose."""
        order = np.argsort(keys, kind="stable")
        return SortedTable(keys[order], values[order])


@kernel
def _count_lines(keys, queries, touched):
    lines = 0
    for i in range(len(queries)):
        touched[0] = 0
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            touch(touched, 0, middle * keys.itemsize // LINE)
            if queries[i] < keys[middle]:
                high = middle
            else:
                low = middle + 1
        lines += touched[0]
        lines += low > 0 and keys[low - 1] == queries[i]
    return lines
