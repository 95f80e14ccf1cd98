"""Linear probing: a key stands at its hash or as soon after as there was room.

Neighbours share lines, so short runs cost one miss; at high load runs grow together, and an absent key walks to the end of one.
Keys and values stand apart, as in `simd3`. The pattern EMPTY has a side slot of its own.

Knuth, Notes on open addressing, 1963.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tables.buckets import AHEAD, SEEDS, fmix64, scaled, touch
from .tables.keys import aligned, empty_of
from .tables.map import KernelTable, Map, slots_for
from .tables.probe import LINE, kernel, part, prefetch

SEED = np.uint64(SEEDS[0])


@dataclass(frozen=True)
class Linear(Map):
    """Open addressing with linear probing."""

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> KernelTable:
        """Builds a table of n/load slots."""
        slots = slots_for(len(keys), load)
        held, side = aligned(slots, keys.dtype, empty_of(keys.dtype)), np.zeros(1, np.int64)
        stored = aligned(slots + 1, values.dtype)
        _insert_many(held, stored, side, keys, values)
        return KernelTable(
            lambda queries, default, out, found: _get_many(held, stored, side, queries, default, out, found),
            lambda queries, touched: _count_lines(held, stored, side, queries, touched),
            values.dtype, held.nbytes + stored.nbytes,
        )  # fmt: skip


@part
def _home(keys, key):
    return np.intp(scaled(fmix64(np.uint64(key) ^ SEED), np.uint64(len(keys))))


@part
def _find(keys, side, key, touched):
    # A free slot always ends the walk: there is one slot more than the load asks for.
    empty = keys.dtype.type(~np.uint64(0))
    if key == empty:
        return np.intp(len(keys) if side[0] else -1)
    slot = _home(keys, key)
    while True:
        if touched is not None:
            touch(touched, 0, slot * keys.itemsize // LINE)
        held = keys[slot]
        if held == key:
            return slot
        if held == empty:
            return np.intp(-1)
        slot = np.intp(slot + 1 if slot + 1 < len(keys) else 0)


@kernel
def _insert_many(keys, values, side, new_keys, new_values):
    empty = keys.dtype.type(~np.uint64(0))
    n = len(new_keys)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(keys, _home(keys, new_keys[i + AHEAD]))
        key = new_keys[i]
        if key == empty:
            side[0] = 1
            values[len(keys)] = new_values[i]
            continue
        slot = _home(keys, key)
        while keys[slot] != empty and keys[slot] != key:
            slot = np.intp(slot + 1 if slot + 1 < len(keys) else 0)
        keys[slot] = key
        values[slot] = new_values[i]


@kernel
def _get_many(keys, values, side, queries, default, out, found):
    n = len(queries)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(keys, _home(keys, queries[i + AHEAD]))
        slot = _find(keys, side, queries[i], None)
        found[i] = slot >= 0
        out[i] = values[slot] if slot >= 0 else default


@kernel
def _count_lines(keys, values, side, queries, touched):
    lines = 0
    for i in range(len(queries)):
        touched[0] = 0
        slot = _find(keys, side, queries[i], touched)
        lines += touched[0] + (slot >= 0)
    return lines
