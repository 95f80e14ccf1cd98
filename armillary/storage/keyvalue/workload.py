"""Keys to build tables of, queries to ask them, and readers for a user's own columns.

Distinct random keys are a bijection of a counter, so half a billion of them need neither sorting nor a set, and keys that were never
inserted are simply later counters. They are other bijections than the tables' hash functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError, unknown
from armillary.files import Column, column_names, line_blocks, map_array, open_file, read_table
from armillary.files.arrow import check_arrow, read_arrow
from armillary.files.parquet import check_parquet, read_parquet
from armillary.workloads import zipf_approximate

from .tables.keys import KEY_TYPES, as_bits, as_keys, as_values, bits_of, row_numbers

if TYPE_CHECKING:
    import polars as pl

#: Most rows of a file of keys.
MOST_ROWS = 1 << 30
DISTRIBUTIONS = ("uniform", "dense", "clustered", "unit")
RUN = 64
#: Draws by which a search for keys that are absent begins.
TRIAL = 1 << 14
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
        return as_keys(map_array(path), where=str(path))
    if kind == ".csv":
        return _csv_column(path, column)
    if kind in (".parquet", ".pq"):
        series = _parquet_column(path, column)
    elif kind in (".arrow", ".feather", ".ipc"):
        series = _arrow_column(path, column)
    else:
        raise InputError(f'found "{path.suffix}"; expected .npy, .parquet, .arrow, .feather or .csv', where=str(path))
    if series.null_count():
        raise InputError(f'column "{series.name}": found {series.null_count()} missing values; expected none', where=str(path))
    return as_keys(series.to_numpy(), where=f'{path}: column "{series.name}"')


def _named(column: str, names: Sequence[str], path: Path) -> str:
    if not names or (column and column not in names):
        raise unknown("column", column, names, where=str(path))
    return column or names[0]


def _csv_column(path: Path, column: str) -> np.ndarray:
    """Reads a column of integers, or else of floats."""
    names = column_names(path)
    name = _named(column, names, path)
    if len(names) == 1:
        _refuse_blank_lines(path)
    try:
        return as_keys(read_table(path, [Column(name, "int")], row_limit=MOST_ROWS)[name], where=str(path))
    except InputError:
        return as_keys(read_table(path, [Column(name, "float")], row_limit=MOST_ROWS)[name], where=str(path))


def _refuse_blank_lines(path: Path) -> None:
    """A blank line would be a missing key in a file of one column, and the rows behind it would be numbered wrongly."""
    for block, first in line_blocks(path, limit=None):
        at = -1 if not block.startswith((b"\n", b"\r\n")) else 0
        for blank in (b"\n\n", b"\n\r\n"):
            at = max(at, block.find(blank) + 1) if blank in block else at
        if at >= 0:
            raise InputError("found a blank line; expected a key", where=f"{path}:{first + block[:at].count(10)}")


def _parquet_column(path: Path, column: str) -> pl.Series:
    import polars as pl

    with open_file(path, limit=None, unpack=False) as file:
        rows, names = check_parquet(file, str(path), (), None)
        name = _named(column, names, path)
        if rows > MOST_ROWS:
            raise InputError(f"found {rows:,} rows; expected at most {MOST_ROWS:,}", where=str(path))
        check_parquet(file, str(path), (name,), 8 * MOST_ROWS)
        return pl.concat([frame for _, frame in read_parquet(file, str(path), [name], rows)]).to_series()


def _arrow_column(path: Path, column: str) -> pl.Series:
    with open_file(path, limit=None, unpack=False) as file:
        rows, names = check_arrow(file, str(path), None)
        if rows > MOST_ROWS:
            raise InputError(f"found {rows:,} rows; expected at most {MOST_ROWS:,}", where=str(path))
        return read_arrow(file, str(path), _named(column, names, path))


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

    def drawn(many: int) -> np.ndarray:
        found = keys[rng.integers(0, len(keys), many)]
        if keys.dtype.kind == "f":
            found = (found + rng.random(many).astype(keys.dtype)).astype(keys.dtype)
        else:
            found = found + rng.integers(1, 1 << 20, many).astype(keys.dtype)
        at = np.clip(np.searchsorted(known, found), 0, len(known) - 1)
        return found[(known[at] != found) & (found == found)]

    # One draw tells whether enough values are no keys; where they are rare, all that follow would be in vain.
    if absent and len(drawn(TRIAL)) < TRIAL // 128:
        raise InputError("found hardly any value that is not a key; expected --miss 0, or a file of queries", where="--miss")
    while len(misses) < absent:
        misses = np.concatenate([misses, drawn(2 * (absent - len(misses)) + 64)])[:absent]
    asked = np.concatenate([hits, misses])
    rng.shuffle(asked)
    return asked


def read_values(path: Path, column: str) -> np.ndarray:
    """Reads a column of values of 4 or 8 bytes beside the keys."""
    found = read_column(path, column)
    return as_values(found, len(found), where=f'{path}: column "{column}"')
