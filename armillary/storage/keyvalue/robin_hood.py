"""Robin Hood hashing: linear probing in which a key that is far from its hash takes the place of one that is nearer.

All keys end up about equally far from home, so a search for an absent key may stop at the first key that is nearer to its home than
the searched one would be. A slot holds key and distance side by side (distance 0: free), so one line tells both; values stand apart.

Robin Hood hashing, FOCS 1985.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tables.buckets import AHEAD, SEEDS, fmix64, scaled, touch
from .tables.keys import aligned
from .tables.map import KernelTable, Map, slots_for
from .tables.probe import LINE, kernel, part, prefetch

SEED = np.uint64(SEEDS[0])


@dataclass(frozen=True)
class RobinHood(Map):
    """Open addressing in which the poor take from the rich."""

    bytes_per_entry = 16.0

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> KernelTable:
        """Builds a table of n/load slots of (key, distance), and as many values."""
        slots = slots_for(len(keys), load)
        cells, stored = aligned(2 * slots, keys.dtype, 0), aligned(slots, values.dtype)
        _insert_many(cells, stored, keys, values)
        return KernelTable(
            lambda queries, default, out, found: _get_many(cells, stored, queries, default, out, found),
            lambda queries, touched: _count_lines(cells, stored, queries, touched),
            values.dtype, cells.nbytes + stored.nbytes,
        )  # fmt: skip


@part
def _home(values, key):
    return np.intp(scaled(fmix64(np.uint64(key) ^ SEED), np.uint64(len(values))))


@part
def _find(cells, values, key, touched):
    slot, distance = _home(values, key), cells.dtype.type(1)
    while True:
        if touched is not None:
            touch(touched, 0, 2 * slot * cells.itemsize // LINE)
        held = cells[2 * slot + 1]
        if held < distance:
            return np.intp(-1)
        if cells[2 * slot] == key:
            return slot
        slot = np.intp(slot + 1 if slot + 1 < len(values) else 0)
        distance = cells.dtype.type(distance + 1)


@kernel
def _insert_many(cells, values, new_keys, new_values):
    # Invariant: along a run, a key's distance is at most one more than its predecessor's.
    n = len(new_keys)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(cells, 2 * _home(values, new_keys[i + AHEAD]))
        key, value = new_keys[i], new_values[i]
        slot, distance = _home(values, key), cells.dtype.type(1)
        carried = False
        while True:
            held = cells[2 * slot + 1]
            if held == 0:
                cells[2 * slot], cells[2 * slot + 1], values[slot] = key, distance, value
                break
            if not carried and held == distance and cells[2 * slot] == key:
                values[slot] = value
                break
            if held < distance:
                other_key, other_value = cells[2 * slot], values[slot]
                cells[2 * slot], cells[2 * slot + 1], values[slot] = key, distance, value
                key, value, distance, carried = other_key, other_value, held, True
            slot = np.intp(slot + 1 if slot + 1 < len(values) else 0)
            distance = cells.dtype.type(distance + 1)


@kernel
def _get_many(cells, values, queries, default, out, found):
    n = len(queries)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(cells, 2 * _home(values, queries[i + AHEAD]))
        slot = _find(cells, values, queries[i], None)
        found[i] = slot >= 0
        out[i] = values[slot] if slot >= 0 else default


@kernel
def _count_lines(cells, values, queries, touched):
    lines = 0
    for i in range(len(queries)):
        touched[0] = 0
        slot = _find(cells, values, queries[i], touched)
        lines += touched[0] + (slot >= 0)
    return lines
