"""A Swiss table: one byte of hash for each slot, sixteen of them compared at once.

A byte is free (0x80) or seven bits of its key's hash. A lookup compares the sixteen bytes of a group with its own seven bits and
looks at the keys of those that agree, about one in eight lookups in vain; a group with a free byte ends the search. Key and value
stand side by side, so a hit reads one line of bytes and one of slots. Groups are probed one after another.

This is our own table of Abseil's design: Designing a Fast, Efficient, Cache-friendly Hash Table, Step by Step, CppCon 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tables.buckets import AHEAD, SEEDS, fmix64, scaled, touch
from .tables.keys import aligned
from .tables.map import KernelTable, Map, slots_for
from .tables.probe import LINE, first_lane, kernel, match_tags, part, prefetch

GROUP = 16
FREE = 0x80
SEED = np.uint64(SEEDS[0])


@dataclass(frozen=True)
class Swiss(Map):
    """Seven-bit tags in groups of sixteen, matched by one comparison."""

    bytes_per_entry = 13.0

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> KernelTable:
        """Builds a table of n/(16 load) groups; a slot is two words of the wider of key and value."""
        groups = slots_for(len(keys), load, GROUP)
        groups += groups * GROUP <= len(keys)
        tags = aligned(groups * GROUP, np.uint8, FREE)
        cells = aligned(2 * groups * GROUP, f"u{max(keys.itemsize, values.itemsize)}")
        _insert_many(tags, cells, keys, values)
        return KernelTable(
            lambda queries, default, out, found: _get_many(tags, cells, queries, default, out, found),
            lambda queries, touched: _count_lines(tags, cells, queries, touched),
            values.dtype, tags.nbytes + cells.nbytes,
        )  # fmt: skip


@part
def _group(tags, h):
    return np.intp(scaled(h, np.uint64(len(tags) // GROUP)) * np.uint64(GROUP))


@part
def _find(tags, cells, key, touched):
    # The slot of the key, or -1 - the first free slot. Some slot is always free.
    h = fmix64(np.uint64(key) ^ SEED)
    tag = np.uint8(h & np.uint64(0x7F))
    slot = _group(tags, h)
    while True:
        if touched is not None:
            touch(touched, 1, slot // LINE)
        alike = match_tags(tags, slot, tag)
        while alike:
            held = slot + first_lane(alike)
            if touched is not None:
                touch(touched, 0, 2 * held * cells.itemsize // LINE)
            if cells[2 * held] == key:
                return np.intp(held)
            alike = np.uint32(alike & (alike - np.uint32(1)))
        free = match_tags(tags, slot, np.uint8(FREE))
        if free:
            return np.intp(-1 - (slot + first_lane(free)))
        slot = np.intp(slot + GROUP if slot + GROUP < len(tags) else 0)


@kernel
def _insert_many(tags, cells, new_keys, new_values):
    n = len(new_keys)
    for i in range(n):
        if i + AHEAD < n:
            group = _group(tags, fmix64(np.uint64(new_keys[i + AHEAD]) ^ SEED))
            prefetch(tags, group)
            prefetch(cells, 2 * group)
        key = new_keys[i]
        slot = _find(tags, cells, key, None)
        if slot < 0:
            slot = np.intp(-1 - slot)
            tags[slot] = np.uint8(fmix64(np.uint64(key) ^ SEED) & np.uint64(0x7F))
            cells[2 * slot] = key
        cells[2 * slot + 1] = new_values[i]


@kernel
def _get_many(tags, cells, queries, default, out, found):
    n = len(queries)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(tags, _group(tags, fmix64(np.uint64(queries[i + AHEAD]) ^ SEED)))
        slot = _find(tags, cells, queries[i], None)
        found[i] = slot >= 0
        out[i] = cells[2 * slot + 1] if slot >= 0 else default


@kernel
def _count_lines(tags, cells, queries, touched):
    lines = 0
    for i in range(len(queries)):
        touched[0] = 0
        _find(tags, cells, queries[i], touched)
        lines += touched[0]
    return lines
