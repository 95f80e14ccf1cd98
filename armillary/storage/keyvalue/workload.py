"""Keys to build tables of, queries to ask them, and readers for a user's own columns.

Distinct random keys are a bijection of a counter, so half a billion of them need neither sorting nor a set, and keys that were never
inserted are simply later counters. They are other bijections than the tables' hash functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.workloads import zipf_approximate

from .tables.keys import KEY_TYPES, as_bits, as_keys, as_values, bits_of, row_numbers

DISTRIBUTIONS = ("uniform", "dense", "clustered", "unit")
RUN = 64
ZIPF = 0.99
#: (shift, odd factor) of each round of two public bijections, of 32 and of 64 bits; the tables' hash functions have other ones.
LOWBIAS32 = ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1))
MIX13 = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


@dataclass(frozen=True)
class Work:
    """Keys and values for a table, and queries for it, all as bits."""

    keys: np.ndarray
    values: np.ndarray
    queries: np.ndarray


def distinct_keys(distribution: str, dtype: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws `count` distinct keys, equal for an equal state of `rng`; any part of them is of the same kind as all.

    `uniform`: uniform random; `dense`: 0 … count-1, in order; `clustered`: runs of 64 neighbours at random places; `unit`: floats
    uniform in [0, 1), for which `dtype` must be a float.
    """
    kind = np.dtype(dtype)
    if kind.name not in KEY_TYPES:
        raise unknown("key type", dtype, KEY_TYPES)
    legal = ("unit",) if kind.kind == "f" else DISTRIBUTIONS[:-1]
    if distribution not in legal:
        raise unknown(f"distribution of {dtype} keys", distribution, legal)
    width = np.dtype(f"u{kind.itemsize}")
    if distribution == "uniform":
        return mixed(np.arange(count, dtype=width) + rng.integers(0, 1 << 32, dtype=np.uint64).astype(width)).view(kind)
    if distribution == "dense":
        return np.arange(count, dtype=width).view(kind)
    if distribution == "unit":
        return _unit(kind, count, rng)
    wanted = -(-count // RUN)
    runs = np.zeros(0, width)
    while len(runs) < wanted:
        runs = np.unique(np.concatenate([runs, rng.integers(0, 1 << (8 * kind.itemsize - 6), 2 * wanted, dtype=np.uint64).astype(width)]))
    made = (rng.permutation(runs)[:wanted, None] << width.type(6)) + np.arange(RUN, dtype=width)
    return made.ravel()[:count].view(kind)


def _unit(kind: np.dtype, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws multiples of 2^-24 or 2^-53 by a scaled bijection of as many bits."""
    bits = 24 if kind.itemsize == 4 else 53
    if count > 1 << bits:
        raise InputError(f"found {count} keys; expected at most 2^{bits} distinct {kind} in [0, 1)", where="keys")
    mask = np.uint64((1 << bits) - 1)
    x = (np.arange(count, dtype=np.uint64) + rng.integers(0, 1 << bits, dtype=np.uint64)) & mask
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        x = (x * np.uint64(factor)) & mask
        x ^= x >> np.uint64(bits // 2)
    return (x.astype(np.float64) * 2.0**-bits).astype(kind)


def mixed(counters: np.ndarray) -> np.ndarray:
    """Applies a random-looking bijection of 32 or 64 bits, made of xor-shifts and odd multipliers (lowbias32; Stafford's mix 13)."""
    x = counters.copy()
    for shift, factor in LOWBIAS32 if x.itemsize == 4 else MIX13:
        x ^= x >> x.dtype.type(shift)
        x *= x.dtype.type(factor)
    return x


def make_work(
    distribution: str,
    dtype: str,
    count: int,
    queries: int,
    miss: float,
    rng: np.random.Generator,
    *,
    popularity: str = "hit",
    value_bytes: int = 0,
) -> Work:
    """Makes a table's keys with row numbers as values, and shuffled queries, of which a share `miss` asks for keys never inserted.

    Hits are uniform over the keys (`popularity="hit"`) or Zipf 0.99 (`"zipf"`). `value_bytes` 0 is the width of the key.
    """
    if popularity not in ("hit", "zipf"):
        raise unknown("popularity", popularity, ("hit", "zipf"))
    absent = round(miss * queries)
    # No more absent keys than that are made; a query may ask for one again.
    spare = min(absent, max(count, 1 << 20), max(0, (1 << 24) - count) if dtype == "float32" else absent)
    keys = bits_of(distinct_keys(distribution, dtype, count + spare, rng))
    held, never = keys[:count], keys[count:]
    if distribution != "uniform":
        held = rng.permutation(held)
    values = row_numbers(0, count, np.dtype(f"u{value_bytes or keys.itemsize}"))
    if not count:
        hits = held
    elif popularity == "zipf":
        hits = held[zipf_approximate(rng, count, ZIPF, queries - absent)]
    else:
        hits = held[rng.integers(0, count, queries - absent)]
    misses = never[rng.integers(0, max(1, len(never)), absent)] if len(never) else never[:0]
    asked = np.concatenate([hits, misses])
    rng.shuffle(asked)
    return Work(np.ascontiguousarray(held), values, asked)


def read_column(path: Path, column: str = "") -> np.ndarray:
    """Reads the named or first column of numbers from a .npy (no pickles), Parquet, Arrow (.arrow, .feather) or CSV file."""
    kind = path.suffix.lower()
    if kind == ".npy":
        return _npy(path)
    if kind not in (".parquet", ".pq", ".arrow", ".feather", ".ipc", ".csv"):
        raise InputError(f'found "{path.suffix}"; expected .npy, .parquet, .arrow, .feather or .csv', where=str(path))
    import polars

    try:
        if kind in (".parquet", ".pq"):
            lazy = polars.scan_parquet(path)
        elif kind == ".csv":
            lazy = polars.scan_csv(path)
        else:
            lazy = polars.scan_ipc(path)
        names = lazy.collect_schema().names()
        if not names or (column and column not in names):
            raise unknown("column", column, names, where=str(path))
        series = lazy.select(polars.col(column or names[0])).collect().to_series()
    except (polars.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise InputError(f"found a file that cannot be read ({str(error).splitlines()[0]}); expected a table", where=str(path)) from None
    if series.null_count():
        raise InputError(f'column "{series.name}": found {series.null_count()} missing values; expected none', where=str(path))
    return as_keys(series.to_numpy(), where=f'{path}: column "{series.name}"')


def _npy(path: Path) -> np.ndarray:
    try:
        # Mapped, so that a header that promises more than the file has is an error and not an allocation.
        found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"found a file that cannot be read ({reason}); expected a .npy array", where=str(path)) from None
    return np.asarray(as_keys(found, where=str(path)))


def own_work(keys: np.ndarray, values: np.ndarray | None, queries: np.ndarray) -> Work:
    """Returns a user's keys, values (or row numbers) and queries as bits."""
    held = row_numbers(0, len(keys)) if values is None else as_values(values, len(keys))
    return Work(bits_of(keys), as_bits(held), bits_of(as_keys(queries, keys.dtype, "queries")))


def own_queries(keys: np.ndarray, miss: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws queries for a user's keys: uniform rows, and a share `miss` of keys that are not among them.

    Absent integers are present ones plus at most 2^20 (modulo the type's range), absent floats present ones plus less than one.
    """
    absent = round(miss * count)
    hits = keys[rng.integers(0, len(keys), count - absent)]
    known, misses = np.sort(keys), keys[:0]
    for _ in range(64):
        short = absent - len(misses)
        if short <= 0:
            break
        drawn = keys[rng.integers(0, len(keys), 2 * short + 64)]
        if keys.dtype.kind == "f":
            drawn = (drawn + rng.random(len(drawn)).astype(keys.dtype)).astype(keys.dtype)
        else:
            drawn = drawn + rng.integers(1, 1 << 20, len(drawn)).astype(keys.dtype)
        at = np.clip(np.searchsorted(known, drawn), 0, len(known) - 1)
        misses = np.concatenate([misses, drawn[(known[at] != drawn) & (drawn == drawn)]])[:absent]
    if len(misses) < absent:
        raise InputError("found hardly any value that is not a key; expected --miss 0, or a file of queries", where="--miss")
    asked = np.concatenate([hits, misses])
    rng.shuffle(asked)
    return asked


def read_values(path: Path, column: str) -> np.ndarray:
    """Reads a column of values of 4 or 8 bytes beside the keys."""
    found = read_column(path, column)
    return as_values(found, len(found), where=f'{path}: column "{column}"')
