"""A left join in Polars: what a data frame user writes. The hash table lives for one join only, so every batch builds it anew.

Polars, first released 2020; joins are partitioned over all threads of its pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .tables.map import Map


@dataclass(frozen=True)
class JoinTable:
    """A frame of keys and values to join with."""

    frame: Any

    @property
    def nbytes(self) -> int:
        """Bytes of the frame, without the table that each join makes."""
        return int(self.frame.estimated_size())

    def get_many(self, queries: np.ndarray, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query, in their order."""
        import polars

        joined = polars.DataFrame({"key": queries}).join(self.frame, on="key", how="left", maintain_order="left")["value"]
        return joined.fill_null(default).to_numpy(), joined.is_not_null().to_numpy()


@dataclass(frozen=True)
class PolarsJoin(Map):
    """polars.DataFrame.join, how="left"."""

    bytes_per_entry = 60.0

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> JoinTable:
        """Builds a frame with the last of equal keys."""
        import polars

        frame = polars.DataFrame({"key": keys, "value": values})
        return JoinTable(frame.unique("key", keep="last", maintain_order=True))
