"""What every technique of this arena does: it builds a table from keys and values, and the table answers batches of lookups.

A technique's own `table` gets bits (`keys.bits_of`) and values as unsigned integers of 4 or 8 bytes, so that all of them meet the same
work: a float key costs each of them what an integer of its width costs. `build` is for everybody and takes numbers of any of the six key
types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.errors import InputError

from .keys import as_bits, as_keys, as_values, bits_of, row_numbers


class Table(Protocol):
    """A built table."""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""

    def get_many(self, queries: np.ndarray, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query."""


class Map(Technique):
    """One kind of hash table, or what stands in for one."""

    #: Approximate bytes per entry of 4 + 4 bytes while a table is built, by which a case that would not fit into memory is declined.
    bytes_per_entry: ClassVar[float] = 12.0

    def build(self, keys: Any, values: Any = None, load: float = 0.8) -> CheckedTable:
        """Builds a table of these keys, of which the last of equal ones counts, with `load` of its slots used where that can be chosen.

        Keys are of one of the six types, where floats compare by value (-0.0 equal to 0.0, all NaNs one key); values are row numbers
        unless they are given.
        """
        found = as_keys(keys)
        held = row_numbers(0, len(found)) if values is None else as_values(values, len(found))
        if not 0 < load <= 1:
            raise InputError(f"found {load}; expected above 0 and at most 1", where="load")
        return CheckedTable(self.table(bits_of(found), as_bits(held), load), found.dtype, held.dtype)

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> Table:
        """Builds the technique's own table of bits."""
        raise NotImplementedError

    def failure_rate(self, keys: np.ndarray, load: float) -> float:
        """Returns the share of distinct keys that meet no free candidate slot, in a table that they fill to `load`."""
        raise NotForThisCase("a key has no fixed candidate slots here")


@dataclass(frozen=True)
class CheckedTable:
    """A technique's table for everybody: queries are of the keys' type, or are converted to it exactly or refused."""

    table: Table
    key_dtype: np.dtype
    value_dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self.table.nbytes

    def get_many(self, queries: Any, default: Any = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query."""
        other = as_bits(as_values([default], 1, self.value_dtype, where="default"))[0]
        values, found = self.table.get_many(bits_of(as_keys(queries, self.key_dtype, "queries")), int(other))
        return values.astype(other.dtype, copy=False).view(self.value_dtype), found

    def mean_lines(self, queries: Any) -> float:
        """Returns the mean number of distinct 64-byte lines that a lookup reads, values included, where the table can count them."""
        count = getattr(self.table, "mean_lines", None)
        if count is None:
            raise NotForThisCase("its memory accesses cannot be counted from here")
        return float(count(bits_of(as_keys(queries, self.key_dtype, "queries"))))


@dataclass(frozen=True)
class KernelTable:
    """A table over arrays: `look(queries, default, out, found)` and, instrumented, `count(queries, touched) -> lines of all`."""

    look: Callable[[np.ndarray, int, np.ndarray, np.ndarray], object]
    count: Callable[[np.ndarray, np.ndarray], int]
    value_dtype: np.dtype
    nbytes: int

    def get_many(self, queries: np.ndarray, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query."""
        out, found = np.empty(len(queries), self.value_dtype), np.empty(len(queries), np.bool_)
        self.look(queries, self.value_dtype.type(default), out, found)
        return out, found

    def mean_lines(self, queries: np.ndarray) -> float:
        """Returns the mean number of distinct 64-byte lines that a lookup reads, values included."""
        return self.count(queries, np.zeros(4096, np.int64)) / max(1, len(queries))


def slots_for(count: int, load: float, group: int = 1) -> int:
    """Returns the groups of slots for this many keys at a load, one more than they fill, so that every search ends."""
    return max(1, -int(-count // (load * group))) + (1 if group == 1 else 0)
