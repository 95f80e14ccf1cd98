"""A hash map for arrays of numbers: one cache line, one comparison, mostly one probe.

    index = SimdMap(keys)                      # key -> its row
    rows, found = index.get_many(queries)

The mechanism is `simd3`'s (see there for what is published and what is ours); this is the object that a program holds. It works on
arrays, one batch per call. Lookups may run from several threads at once; whoever changes the map must be alone with it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from armillary.errors import InputError, unknown

from ..tables import buckets as kernels
from ..tables.buckets import BLOCK, FAILURES, LIVE, SIDE, STASH_LANES, STASHED, STATE, TOMBS, stash_lanes
from ..tables.keys import aligned, as_bits, as_keys, as_values, bits_of, empty_of, keys_of, row_numbers
from ..tables.layout import MOST_BUCKETS, LayoutName, buckets_in, layout_of
from ..tables.probe import LINE

GROWTH = 1.5
MOST_LOAD = 0.97
#: Fewer keys per thread than this are not worth handing over.
LEAST_PART = 50_000


class SimdMap:
    """A map from 32- or 64-bit numbers to values of 4 or 8 bytes, over 64-byte buckets.

    `keys` is an array (NumPy, Polars, pandas, a list) of uint32, uint64, int32, int64, float32 or float64; floats compare by value,
    with -0.0 equal to 0.0 and all NaNs one key. `values` are as many integers or floats of 4 or 8 bytes, by default the row numbers;
    of equal keys the last one counts. `load` is the share of slots that `keys` will fill, above 0 and at most 0.97. `primary` is the
    share of the buckets in the large region. `insert="two-choice"` puts a key into the emptier of its first two buckets: insertions
    fail more rarely, but a miss reads all three lines. `unique=True` promises that no key comes twice, and builds faster. `threads`
    splits the build and every batch; None takes all processors that this process may use.

    Life: it is built, answers, takes insertions and deletions, grows by half when the stash (of 64 keys, or one for every 4096 slots) is
    full, and never shrinks.
    """

    def __init__(
        self,
        keys: Any = (),
        values: Any = None,
        load: float = 0.8,
        *,
        primary: float = 0.9,
        insert: Literal["first-fit", "two-choice"] = "first-fit",
        layout: LayoutName = "simd3",
        unique: bool = False,
        threads: int | None = 1,
    ) -> None:
        if not 0 < load <= MOST_LOAD:
            raise InputError(f"found {load}; expected above 0 and at most {MOST_LOAD}", where="load")
        if not 0 < primary < 1:
            raise InputError(f"found {primary}; expected between 0 and 1", where="primary")
        if insert not in ("first-fit", "two-choice"):
            raise unknown("insertion", str(insert), ("first-fit", "two-choice"), where="insert")
        if layout not in get_args(LayoutName):
            raise unknown("layout", str(layout), get_args(LayoutName), where="layout")
        self.threads = _threads(threads)
        self.primary, self.insertion, self.layout_name, self.load_wanted = primary, insert, layout, load
        found = as_keys(keys)
        self.key_dtype = found.dtype
        held = row_numbers(0, len(found)) if values is None else as_values(values, len(found))
        self.value_dtype = held.dtype
        #: Rows given so far: the next default value.
        self._rows = 0
        lanes = LINE // found.dtype.itemsize
        self._allocate(max(1, -int(-len(found) // (load * lanes))))
        self._insert(bits_of(found), as_bits(held), unique)
        self._rows = len(found)

    def _allocate(self, buckets: int) -> None:
        if buckets > MOST_BUCKETS:
            raise InputError(f"found {buckets} buckets; expected at most {MOST_BUCKETS}", where="keys")
        width = np.dtype(f"u{self.key_dtype.itemsize}")
        self._buckets = buckets
        self._layout = layout_of(self.layout_name, buckets, self.primary)
        slots = buckets_in(self._layout) * (LINE // width.itemsize)
        stash = stash_lanes(slots)
        self._keys = aligned(slots + stash, width, empty_of(width))
        self._values = aligned(slots + stash + 2, f"u{self.value_dtype.itemsize}")
        self._state = np.zeros(STATE, np.int64)
        self._state[STASH_LANES] = stash

    @property
    def _early(self) -> bool:
        return self.insertion == "first-fit"

    def __len__(self) -> int:
        return int(self._state[LIVE])

    def __contains__(self, key: Any) -> bool:
        return bool(self.contains_many([key])[0])

    def __getitem__(self, key: Any) -> Any:
        values, found = self.get_many([key])
        if not found[0]:
            raise KeyError(key)
        return values[0]

    def __repr__(self) -> str:
        return f"SimdMap({len(self)} {self.key_dtype} keys, {self.value_dtype} values, fill {self.fill:.2f})"

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and layout."""
        return int(self._keys.nbytes + self._values.nbytes + self._layout.nbytes + self._state.nbytes)

    @property
    def capacity(self) -> int:
        """Slots in buckets, without the stash."""
        return len(self._keys) - int(self._state[STASH_LANES])

    @property
    def fill(self) -> float:
        """Live keys per slot."""
        return len(self) / self.capacity

    @property
    def failures(self) -> int:
        """Insertions so far that found none of their candidates free, whether the stash took them or the table grew."""
        return int(self._state[FAILURES])

    def get_many(self, queries: Any, default: Any = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query: the value or `default`, and whether the key is here."""
        bits = self._queries(queries)
        out, found = np.empty(len(bits), self.value_dtype), np.empty(len(bits), np.bool_)
        other = as_bits(as_values([default], 1, self.value_dtype, where="default"))[0]

        def look(part: slice) -> None:
            kernels.get_many(
                self._keys, self._values, self._layout, self._state, self._early, bits[part], other, as_bits(out)[part], found[part],
                np.empty((4, BLOCK), np.int64),
            )  # fmt: skip

        self._split(len(bits), look)
        return out, found

    def contains_many(self, queries: Any) -> np.ndarray:
        """Returns whether each query is a key of the map."""
        bits = self._queries(queries)
        found = np.empty(len(bits), np.bool_)

        def look(part: slice) -> None:
            scratch = np.empty((4, BLOCK), np.int64)
            kernels.contains_many(self._keys, self._layout, self._state, self._early, bits[part], found[part], scratch)

        self._split(len(bits), look)
        return found

    def contains(self, series: Any) -> Any:
        """Says which entries of a series are keys, as a series of its library (Polars, where null stays null, or pandas) or an array.

        It fits `pl.col("id").map_batches(index.contains, return_dtype=pl.Boolean)`; see also `membership.contains`.
        """
        from .membership import contained

        return contained(self, series)

    def insert_many(self, keys: Any, values: Any = None, *, unique: bool = False) -> None:
        """Inserts or overwrites; without `values`, rows are numbered on. `unique` promises that all keys are new and distinct."""
        found = as_keys(keys, self.key_dtype)
        if values is None:
            held = row_numbers(self._rows, len(found), self.value_dtype)
        else:
            held = as_values(values, len(found), self.value_dtype)
        self._insert(bits_of(found), as_bits(held), unique)
        self._rows += len(found)

    def delete_many(self, keys: Any) -> np.ndarray:
        """Deletes, and says which keys were there; of a key that is given twice, only the first was."""
        bits = self._queries(keys, "keys")
        found = np.empty(len(bits), np.bool_)
        kernels.delete_many(self._keys, self._layout, self._state, self._early, bits, found)
        if self._state[TOMBS] > self.capacity // 4:
            # A miss reads on past tombstones, so a table full of them is filled anew.
            self._rebuild(buckets_in(self._layout))
        return found

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (keys, values) of everything in the map, in no particular order."""
        bits, values = self._items()
        return keys_of(bits, self.key_dtype), values.view(self.value_dtype)

    def lines(self, queries: Any) -> tuple[float, float]:
        """Returns the mean 64-byte lines that a lookup reads, (of keys, of values), which an instrumented twin of the lookup counts."""
        bits = self._queries(queries)
        touched = np.zeros(64, np.int64)
        of_keys, of_values = kernels.count_lines(self._keys, self._values, self._layout, self._state, self._early, bits, touched)
        return of_keys / max(1, len(bits)), of_values / max(1, len(bits))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the map to an .npz file without pickles; the file is whole or not there, also after a crash."""
        from .snapshot import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SimdMap:
        """Reads the map in a file of `save`, whose header, lengths and checksums are checked."""
        from .snapshot import load

        return load(Path(path))[0]

    def _queries(self, queries: Any, where: str = "queries") -> np.ndarray:
        return bits_of(as_keys(queries, self.key_dtype, where))

    def _split(self, count: int, work: Callable[[slice], None]) -> None:
        """Works on slices of a batch, on threads where there is enough to do."""
        threads = min(self.threads, count // LEAST_PART)
        if threads < 2:
            work(slice(0, count))
            return
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, _slices(count, threads)))

    def _insert(self, bits: np.ndarray, values: np.ndarray, unique: bool) -> None:
        if self.threads > 1 and len(bits) >= 2 * LEAST_PART and self._early:
            if unique:
                self._reserve(len(bits))
            rows = self._insert_first(bits, values, unique)
            bits, values = bits[rows], values[rows]
        done = 0
        while done < len(bits):
            done += kernels.insert_many(
                self._keys, self._values, self._layout, self._state, not self._early, unique, True, bits[done:], values[done:]
            )
            if done < len(bits):
                self._rebuild(int(buckets_in(self._layout) * GROWTH) + 1)

    def _reserve(self, more: int) -> None:
        """Grows once for this many new keys if they would not fit."""
        lanes = LINE // self._keys.itemsize
        if len(self) + more > MOST_LOAD * self.capacity:
            self._rebuild(-int(-(len(self) + more) // (self.load_wanted * lanes)))

    def _insert_first(self, bits: np.ndarray, values: np.ndarray, unique: bool) -> np.ndarray:
        """Fills first candidates in parallel, each thread its own range; returns the rows that did not fit, in order for each key."""
        threads = min(self.threads, len(bits) // LEAST_PART)
        slices = list(_slices(len(bits), threads))
        sizes = np.zeros((threads, threads), np.int64)
        order = np.empty(len(bits), np.uint32 if len(bits) < 2**32 else np.int64)
        states = np.zeros((threads, len(self._state)), np.int64)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda t: kernels.count_parts(self._layout, bits[slices[t]], threads, sizes[t]), range(threads)))
            # Part by part, and slice by slice inside: equal keys stay in the order in which they were given.
            starts = (np.cumsum(sizes.T) - sizes.T.ravel()).reshape(threads, threads).T.copy()
            bounds = np.append(starts[0], len(bits))
            list(
                pool.map(
                    lambda t: kernels.scatter_parts(self._layout, bits[slices[t]], slices[t].start, threads, starts[t], order),
                    range(threads),
                )
            )
            parts = [order[bounds[t] : bounds[t + 1]] for t in range(threads)]
            left = list(
                pool.map(
                    lambda t: kernels.insert_first(self._keys, self._values, self._layout, states[t], unique, bits, values, parts[t]),
                    range(threads),
                )
            )
        self._state += states.sum(axis=0)
        return np.concatenate([part[:count] for part, count in zip(parts, left)])

    def _items(self) -> tuple[np.ndarray, np.ndarray]:
        tomb = self._keys.dtype.type(empty_of(self._keys.dtype) - 1)
        slots = np.flatnonzero(self._keys < tomb)
        sides = np.flatnonzero(self._state[SIDE : SIDE + 2])
        bits = np.concatenate([self._keys[slots], sides.astype(self._keys.dtype) + tomb])
        return bits, np.concatenate([self._values[slots], self._values[len(self._keys) + sides]])

    def _rebuild(self, buckets: int) -> None:
        """Moves the content to this many buckets, or to more where they do not suffice."""
        old_keys, old_values, old_state = self._keys, self._values, self._state
        while True:
            self._allocate(buckets)
            if self._refilled(old_keys, old_values, old_state):
                return
            buckets = int(buckets * GROWTH) + 1

    def _refilled(self, old_keys: np.ndarray, old_values: np.ndarray, old_state: np.ndarray) -> bool:
        """Fills the new arrays block by block, so that no third copy is made, and returns whether all keys found room."""
        tomb = old_keys.dtype.type(empty_of(old_keys.dtype) - 1)
        for start in range(0, len(old_keys), 1 << 20):
            block = old_keys[start : start + (1 << 20)]
            live = np.flatnonzero(block < tomb)
            new_keys, new_values = block[live], old_values[start + live]
            args = (self._keys, self._values, self._layout, self._state, not self._early, True, False, new_keys, new_values)
            if kernels.insert_many(*args) < len(new_keys):
                return False
        for side in range(2):
            self._state[SIDE + side] = old_state[SIDE + side]
            self._state[LIVE] += old_state[SIDE + side]
            self._values[len(self._keys) + side] = old_values[len(old_keys) + side]
        self._state[FAILURES] = old_state[FAILURES]
        return True

    @property
    def stashed(self) -> int:
        """Keys in the stash."""
        return int(self._state[STASHED])


def _threads(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= threads <= 1024:
        raise InputError(f"found {threads}; expected 1 to 1024", where="threads")
    return threads


def _slices(count: int, parts: int) -> Iterator[slice]:
    edges = [count * p // parts for p in range(parts + 1)]
    yield from (slice(a, b) for a, b in itertools.pairwise(edges))
