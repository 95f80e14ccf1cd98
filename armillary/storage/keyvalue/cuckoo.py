"""Cuckoo hashing: a key has two candidate buckets of four slots, and one that finds both full displaces another.

The displaced key goes to its other bucket, where it may displace the next, until one finds room, so tables fill to 0.97 and every
lookup reads at most two buckets. A bucket is probed by one comparison of four lanes. Insertions are a random walk of at most 500
steps; beyond that the table grows by half. The pattern EMPTY has a side slot.

Cuckoo hashing, Journal of Algorithms 2004; buckets: Balanced allocation and dictionaries with tightly packed constant size bins,
ICALP 2005.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tables.buckets import AHEAD, SEEDS, fmix64, scaled, touch
from .tables.keys import aligned, empty_of
from .tables.map import KernelTable, Map, slots_for
from .tables.probe import LINE, first_lane, kernel, match4, part, prefetch

SLOTS = 4
MOST_STEPS = 500
SEED_1, SEED_2 = np.uint64(SEEDS[0]), np.uint64(SEEDS[1])
#: Places in `state`: whether the side slot is used, keys that found both candidates full, and the random walk's last number.
SIDE, FULL, WALK = 0, 1, 2


@dataclass(frozen=True)
class Cuckoo(Map):
    """Two hashes, four slots per bucket, displacement."""

    def table(self, keys: np.ndarray, values: np.ndarray, load: float) -> KernelTable:
        """Builds a table of n/(4 load) buckets, or more where a walk did not end."""
        buckets = slots_for(len(keys), load, SLOTS)
        while True:
            held, stored, state = _empty(buckets, keys.dtype, values.dtype)
            if _insert_many(held, stored, state, keys, values) == len(keys):
                break
            buckets = buckets * 3 // 2 + 1
        return KernelTable(
            lambda queries, default, out, found: _get_many(held, stored, state, queries, default, out, found),
            lambda queries, touched: _count_lines(held, stored, state, queries, touched),
            values.dtype, held.nbytes + stored.nbytes,
        )  # fmt: skip

    def failure_rate(self, keys: np.ndarray, load: float) -> float:
        """Returns the share of keys that found both candidates full and had to displace."""
        held, stored, state = _empty(max(1, round(len(keys) / (load * SLOTS))), keys.dtype, keys.dtype)
        _insert_many(held, stored, state, keys, keys)
        return float(state[FULL]) / max(1, len(keys))


def _empty(buckets: int, keys: np.dtype, values: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    state = np.array([0, 0, SEEDS[2]], np.uint64)
    return aligned(buckets * SLOTS, keys, empty_of(keys)), aligned(buckets * SLOTS + 1, values), state


@part
def _bucket(keys, seed, key):
    return np.intp(scaled(fmix64(np.uint64(key) ^ seed), np.uint64(len(keys) // SLOTS)) * np.uint64(SLOTS))


@part
def _find(keys, state, key, touched):
    if key == keys.dtype.type(~np.uint64(0)):
        return np.intp(len(keys) if state[SIDE] else -1)
    for turn in range(2):
        slot = _bucket(keys, SEED_2 if turn else SEED_1, key)
        if touched is not None:
            touch(touched, 0, slot * keys.itemsize // LINE)
        found = match4(keys, slot, key)
        if found:
            return np.intp(slot + first_lane(found))
    return np.intp(-1)


@part
def _free(keys, slot):
    free = match4(keys, slot, keys.dtype.type(~np.uint64(0)))
    return np.intp(slot + first_lane(free)) if free else np.intp(-1)


@kernel
def _insert_many(keys, values, state, new_keys, new_values):
    # Returns how many are in. They are fewer than given when a walk did not end, and then one key of the table has lost its slot.
    n = len(new_keys)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(keys, _bucket(keys, SEED_1, new_keys[i + AHEAD]))
            prefetch(keys, _bucket(keys, SEED_2, new_keys[i + AHEAD]))
        key, value = new_keys[i], new_values[i]
        if key == keys.dtype.type(~np.uint64(0)):
            state[SIDE] = 1
            values[len(keys)] = value
            continue
        held = _find(keys, state, key, None)
        if held >= 0:
            values[held] = value
            continue
        first, second = _bucket(keys, SEED_1, key), _bucket(keys, SEED_2, key)
        slot = _free(keys, first)
        if slot < 0:
            slot = _free(keys, second)
        if slot >= 0:
            keys[slot], values[slot] = key, value
            continue
        state[FULL] += np.uint64(1)
        bucket = first
        for step in range(MOST_STEPS + 1):
            if step == MOST_STEPS:
                return i
            walk = state[WALK]
            walk ^= walk << np.uint64(13)
            walk ^= walk >> np.uint64(7)
            walk ^= walk << np.uint64(17)
            state[WALK] = walk
            slot = np.intp(bucket + np.intp(walk >> np.uint64(62)))
            other_key, other_value = keys[slot], values[slot]
            keys[slot], values[slot] = key, value
            key, value = other_key, other_value
            first, second = _bucket(keys, SEED_1, key), _bucket(keys, SEED_2, key)
            bucket = second if bucket == first else first
            slot = _free(keys, bucket)
            if slot >= 0:
                keys[slot], values[slot] = key, value
                break
    return n


@kernel
def _get_many(keys, values, state, queries, default, out, found):
    n = len(queries)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(keys, _bucket(keys, SEED_1, queries[i + AHEAD]))
            prefetch(keys, _bucket(keys, SEED_2, queries[i + AHEAD]))
        slot = _find(keys, state, queries[i], None)
        found[i] = slot >= 0
        out[i] = values[slot] if slot >= 0 else default


@kernel
def _count_lines(keys, values, state, queries, touched):
    lines = 0
    for i in range(len(queries)):
        touched[0] = 0
        slot = _find(keys, state, queries[i], touched)
        lines += touched[0] + (slot >= 0)
    return lines
