"""pandas' Index: a khash table from keys to positions, behind `get_indexer`.

It is pandas 3 where that is installed; khash is from 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.extras import need

from .tables.map import Map


@dataclass(frozen=True)
class PandasTable:
    """An Index whose hash table is built, and the values by position."""

    index: Any
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of the index, of its hash table by pandas' own count, and of the values."""
        return int(self.index.memory_usage(deep=True) + self.values.nbytes)

    def get_many(self, queries: np.ndarray, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query."""
        at = self.index.get_indexer(queries)
        found = at >= 0
        if not len(self.values):
            return np.full(len(queries), default, self.values.dtype), found
        return np.where(found, self.values[at], self.values.dtype.type(default)), found


@dataclass(frozen=True)
class PandasIndex(Map):
    """pandas.Index.get_indexer."""

    bytes_per_entry = 60.0

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> PandasTable:
        """Builds an Index over distinct keys, which chooses its own load."""
        index = need("pandas").Index(keys)
        if not index.is_unique:
            last = ~index.duplicated(keep="last")
            index, values = index[last], values[last]
        index.get_indexer(keys[:1])  # makes the hash table
        return PandasTable(index, values)
