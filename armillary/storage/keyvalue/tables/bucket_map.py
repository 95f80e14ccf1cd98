"""Maps over 64-byte buckets, as `simd3` and its layout rivals share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..maps.simd_map import SimdMap
from . import buckets as kernels
from .buckets import STATE
from .keys import aligned, empty_of
from .layout import LayoutName, buckets_in, layout_of
from .map import Map, Table
from .probe import LINE


class BucketMap(Map):
    """A map over 64-byte buckets: a layout, and SimdMap for the rest."""

    layout: ClassVar[LayoutName]
    primary: float = 0.9
    insert: Literal["first-fit", "two-choice"] = "first-fit"
    threads: int = 1

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> SimdTable:
        """Builds a SimdMap of this layout."""
        made = SimdMap(keys, values, load, primary=self.primary, insert=self.insert, layout=self.layout, threads=self.threads)
        return SimdTable(made)

    def failure_rate(self, keys: np.ndarray, load: float) -> float:
        """Counts the share of distinct keys without a free candidate while a table is filled, before any stash or growth."""
        lanes = LINE // keys.itemsize
        layout = layout_of(self.layout, max(1, round(len(keys) / (load * lanes))), self.primary)
        table = aligned(buckets_in(layout) * lanes, keys.dtype, empty_of(keys.dtype))
        state = np.zeros(STATE, np.int64)
        return float(kernels.count_failures(table, layout, state, self.insert == "two-choice", keys)) / max(1, len(keys))


@dataclass(frozen=True)
class SimdTable(Table):
    """A SimdMap as the arena asks it."""

    map: SimdMap

    @property
    def nbytes(self) -> int:
        """Bytes of the map."""
        return self.map.nbytes

    def get_many(self, queries: np.ndarray, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query."""
        return self.map.get_many(queries, default)

    def mean_lines(self, queries: np.ndarray) -> float:
        """Returns the mean number of distinct 64-byte lines that a lookup reads, values included."""
        return sum(self.map.lines(queries))
