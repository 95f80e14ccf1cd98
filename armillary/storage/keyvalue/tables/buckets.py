"""Tables of 64-byte buckets without displacement: the kernels of `simd3` and of its layout rivals.

A layout is an array of uint64 with a row for each candidate bucket: [hash seed, first bucket, number of buckets]. A key goes to the
first candidate that has a free lane (first fit). Behind the buckets stands the stash for keys whose candidates were all full: one lane
for every 4096 slots, and 64 at least, so that a table of any size keeps its load. A key begins at a line of the stash given by a hash of
its own and goes on from line to line; a line with an EMPTY lane ends a search. A value has its key's slot number, and behind the stash
come the two side slots.

Invariant of first fit: a bucket that once lost its last EMPTY lane never has one again (delete leaves TOMB there), so a candidate
with an EMPTY lane never turned a key away, and a search may stop at it. `touched` is None, or an array that collects the distinct
lines that a lookup reads: Numba compiles a twin of each kernel for it.
"""

from __future__ import annotations

import numpy as np

from .probe import LINE, first_lane, kernel, lane_count, match, match_from, part, prefetch

#: Least lanes of the stash, and slots of the table for each lane beyond.
STASH, SLOTS_PER_STASH = 64, 4096
#: How many insertions ahead a first line is fetched, and how many lookups are searched together.
AHEAD, BLOCK = 16, 128
#: Three fixed random seeds, one per hash function.
SEEDS = (0x9D39247E33776D41, 0x2AF7398005AAA5C7, 0x44DB015024623547)
#: Places in `state`: live keys, insertions without a free candidate, keys in the stash, TOMB lanes, and whether each side slot is used.
LIVE, FAILURES, STASHED, TOMBS, SIDE = 0, 1, 2, 3, 4
#: Then come the lanes of the stash.
STASH_LANES = SIDE + 2
STATE = STASH_LANES + 1
STASH_SEED = np.uint64(0x6A09E667F3BCC909)
#: What became of an insertion.
NEW, OVERWRITTEN, FAILED = 0, 1, 2


@part
def fmix64(h):
    """Applies MurmurHash3's finaliser, in which every bit of the input flips every bit of the output with probability near one half."""
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


@part
def scaled(h, count):
    """Returns the upper half of a hash as a number below `count`, without a division."""
    return ((h >> np.uint64(32)) * count) >> np.uint64(32)


@part
def candidate(layout, j, key):
    """Returns the number of candidate bucket j of a key."""
    h = fmix64(np.uint64(key) ^ layout[j, 0])
    return np.intp(layout[j, 1] + scaled(h, layout[j, 2]))


@part
def touch(touched, array, line):
    """Notes that a line of an array was read; `touched[0]` counts the distinct ones, which follow."""
    mark = (np.int64(array) << 56) | np.int64(line)
    for i in range(1, touched[0] + 1):
        if touched[i] == mark:
            return
    if touched[0] + 1 < len(touched):
        touched[0] += 1
        touched[touched[0]] = mark


def stash_lanes(slots: int) -> int:
    """Returns the lanes of the stash of a table of this many slots, in whole lines of either width."""
    return max(STASH, -(-slots // (SLOTS_PER_STASH * STASH)) * STASH)


@part
def stash_line(keys, state, key):
    """Returns the line of the stash, counted from its beginning, at which a key begins."""
    lines = np.uint64(state[STASH_LANES] * keys.itemsize // LINE)
    return np.intp(scaled(fmix64(np.uint64(key) ^ STASH_SEED), lines))


@part
def in_stash(keys, state, key, touched):
    """Returns the slot of a key in the stash, or -1."""
    lanes = LINE // keys.itemsize
    first = len(keys) - state[STASH_LANES]
    slot = np.intp(first + stash_line(keys, state, key) * lanes)
    for _ in range(state[STASH_LANES] // lanes):
        if touched is not None:
            touch(touched, 0, slot // lanes)
        found = match(keys, slot, key)
        if found:
            return np.intp(slot + first_lane(found))
        if match(keys, slot, keys.dtype.type(~np.uint64(0))):
            return np.intp(-1)
        slot = np.intp(slot + lanes if slot + lanes < len(keys) else first)
    return np.intp(-1)


@part
def find(keys, layout, state, early, key, first, touched):
    """Returns the slot of a key, or -1; `first` is the first slot of its first candidate."""
    lanes = LINE // keys.itemsize
    empty = keys.dtype.type(~np.uint64(0))
    tomb = keys.dtype.type(~np.uint64(1))
    if key >= tomb:
        side = np.intp(key - tomb)
        return np.intp(len(keys) + side if state[SIDE + side] else -1)
    slot = first
    for j in range(len(layout)):
        if j:
            slot = candidate(layout, j, key) * lanes
        if touched is not None:
            touch(touched, 0, slot // lanes)
        found = match(keys, slot, key)
        if found:
            return np.intp(slot + first_lane(found))
        if early and match(keys, slot, empty):
            return np.intp(-1)
    if state[STASHED]:
        return in_stash(keys, state, key, touched)
    return np.intp(-1)


@part
def search(keys, layout, state, early, queries, start, stop, scratch):
    """Writes to `scratch[1]` the slots of queries[start:stop], or -1, as `find` would; their first lines are on the way already.

    `scratch[0]` has the first slot of each query's first candidate, and gets that of the query a block later, whose line is fetched while
    this one is looked at. Candidate by candidate, the undecided are listed, all their next lines are fetched, and then they are looked
    at. What is undecided cannot be predicted, so the lists are written without branches.
    """
    lanes = LINE // keys.itemsize
    empty = keys.dtype.type(~np.uint64(0))
    tomb = keys.dtype.type(~np.uint64(1))
    ahead, slots, pending, following = scratch[0], scratch[1], scratch[2], scratch[3]
    some = np.uint32(1) << np.uint32(31)  # so that the lowest bit of an empty mask is defined
    count = 0
    for i in range(start, stop):
        k = i - start
        slot = ahead[k]
        if i + BLOCK < len(queries):
            ahead[k] = candidate(layout, 0, queries[i + BLOCK]) * lanes
            prefetch(keys, ahead[k])
        found = match(keys, slot, queries[i])
        ended = early and match(keys, slot, empty) != 0
        slots[k] = slot + first_lane(found | some) if found else np.intp(-1)
        pending[count] = k
        count += (found == 0) & (not ended)
    for j in range(1, len(layout)):
        for p in range(count):
            following[p] = candidate(layout, j, queries[start + pending[p]]) * lanes
            prefetch(keys, following[p])
        left = 0
        for p in range(count):
            k, slot = pending[p], following[p]
            found = match(keys, slot, queries[start + k])
            ended = early and match(keys, slot, empty) != 0
            slots[k] = slot + first_lane(found | some) if found else np.intp(-1)
            pending[left] = k
            left += (found == 0) & (not ended)
        count = left
    if state[STASHED]:
        for p in range(count):
            slots[pending[p]] = in_stash(keys, state, queries[start + pending[p]], None)
    for i in range(start, stop):
        if queries[i] >= tomb:
            side = np.intp(queries[i] - tomb)
            slots[i - start] = len(keys) + side if state[SIDE + side] else -1


@part
def fetch_first(keys, layout, queries, ahead):
    """Fetches the first lines of the first block, and writes their slots."""
    lanes = LINE // keys.itemsize
    for i in range(min(BLOCK, len(queries))):
        ahead[i] = candidate(layout, 0, queries[i]) * lanes
        prefetch(keys, ahead[i])


@kernel
def get_many(keys, values, layout, state, early, queries, default, out, found, scratch):
    """Writes values (or `default`) and whether each query was found; lines are fetched a block ahead. `scratch` is int64, (4, BLOCK)."""
    fetch_first(keys, layout, queries, scratch[0])
    slots = scratch[1]
    for start in range(0, len(queries), BLOCK):
        stop = min(start + BLOCK, len(queries))
        search(keys, layout, state, early, queries, start, stop, scratch)
        for i in range(stop - start):
            if slots[i] >= 0:
                prefetch(values, slots[i])
        for i in range(stop - start):
            found[start + i] = slots[i] >= 0
            out[start + i] = values[slots[i]] if slots[i] >= 0 else default


@kernel
def contains_many(keys, layout, state, early, queries, found, scratch):
    """Writes whether each query is in the table; values are never touched."""
    fetch_first(keys, layout, queries, scratch[0])
    for start in range(0, len(queries), BLOCK):
        stop = min(start + BLOCK, len(queries))
        search(keys, layout, state, early, queries, start, stop, scratch)
        for i in range(stop - start):
            found[start + i] = scratch[1, i] >= 0


@kernel
def count_lines(keys, values, layout, state, early, queries, touched):
    """Returns (lines of keys, lines of values) that all lookups read together; it is the instrumented twin of `get_many`."""
    lanes = LINE // keys.itemsize
    of_keys, of_values = 0, 0
    for i in range(len(queries)):
        touched[0] = 0
        key = queries[i]
        slot = find(keys, layout, state, early, key, candidate(layout, 0, key) * lanes, touched)
        of_keys += touched[0]
        of_values += slot >= 0
    return of_keys, of_values


@part
def place(keys, layout, state, two_choice, unique, key):
    """Makes one insertion and returns (what became of it, slot); FAILED leaves the table as it is. It does not take side keys."""
    lanes = LINE // keys.itemsize
    empty = keys.dtype.type(~np.uint64(0))
    tomb = keys.dtype.type(~np.uint64(1))
    home, room = np.intp(-1), 0
    stopped = False
    for j in range(len(layout)):
        slot = candidate(layout, j, key) * lanes
        if not unique:
            found = match(keys, slot, key)
            if found:
                return OVERWRITTEN, np.intp(slot + first_lane(found))
        free = match_from(keys, slot, tomb)
        if two_choice:
            # The emptier of the first two; the third only when both are full.
            if free and (lane_count(free) > room if j < 2 else home < 0):
                home, room = np.intp(slot + first_lane(free)), lane_count(free)
        elif free:
            if home < 0:
                home = np.intp(slot + first_lane(free))
            if unique or match(keys, slot, empty):
                stopped = True
                break
    if not unique and not stopped and state[STASHED]:
        slot = in_stash(keys, state, key, None)
        if slot >= 0:
            return OVERWRITTEN, slot
    if home < 0:
        return FAILED, home
    if keys[home] == tomb:
        state[TOMBS] -= 1
    keys[home] = key
    state[LIVE] += 1
    return NEW, home


@part
def stash(keys, state, key):
    """Puts a key into the stash and returns its slot, or -1 when the stash is full."""
    lanes = LINE // keys.itemsize
    first = len(keys) - state[STASH_LANES]
    slot = np.intp(first + stash_line(keys, state, key) * lanes)
    for _ in range(state[STASH_LANES] // lanes):
        free = match_from(keys, slot, keys.dtype.type(~np.uint64(1)))
        if free:
            slot = np.intp(slot + first_lane(free))
            keys[slot] = key
            state[STASHED] += 1
            state[LIVE] += 1
            return slot
        slot = np.intp(slot + lanes if slot + lanes < len(keys) else first)
    return np.intp(-1)


@kernel
def insert_many(keys, values, layout, state, two_choice, unique, counted, new_keys, new_values):
    """Inserts until all are in or the stash is full, and returns how many are in. `counted` is False while a table is rebuilt."""
    lanes = LINE // keys.itemsize
    tomb = keys.dtype.type(~np.uint64(1))
    n = len(new_keys)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(keys, candidate(layout, 0, new_keys[i + AHEAD]) * lanes)
        key = new_keys[i]
        if key >= tomb:
            side = np.intp(key - tomb)
            state[LIVE] += 1 - state[SIDE + side]
            state[SIDE + side] = 1
            values[len(keys) + side] = new_values[i]
            continue
        outcome, slot = place(keys, layout, state, two_choice, unique, key)
        if outcome == FAILED:
            slot = stash(keys, state, key)
            if counted:
                state[FAILURES] += 1
            if slot < 0:
                return i
        values[slot] = new_values[i]
    return n


@kernel
def count_failures(keys, layout, state, two_choice, new_keys):
    """Fills a table with distinct keys, without stash and growth, and returns how many found no free candidate."""
    failed = 0
    for i in range(len(new_keys)):
        outcome, _ = place(keys, layout, state, two_choice, True, new_keys[i])
        failed += outcome == FAILED
    return failed


@kernel
def delete_many(keys, layout, state, early, old_keys, found):
    """Deletes, and says which were there."""
    lanes = LINE // keys.itemsize
    empty = keys.dtype.type(~np.uint64(0))
    tomb = keys.dtype.type(~np.uint64(1))
    n = len(old_keys)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(keys, candidate(layout, 0, old_keys[i + AHEAD]) * lanes)
        key = old_keys[i]
        slot = find(keys, layout, state, early, key, candidate(layout, 0, key) * lanes, None)
        found[i] = slot >= 0
        if slot < 0:
            continue
        state[LIVE] -= 1
        if slot >= len(keys):
            state[SIDE + slot - len(keys)] = 0
        elif slot >= len(keys) - state[STASH_LANES]:
            keys[slot] = empty if match(keys, slot // lanes * lanes, empty) else tomb
            state[STASHED] -= 1
        elif match(keys, slot // lanes * lanes, empty):
            keys[slot] = empty
        else:
            keys[slot] = tomb
            state[TOMBS] += 1


@kernel
def count_parts(layout, new_keys, parts, sizes):
    """Counts the keys whose first candidate is in each of `parts` equal ranges of its region; side keys count in the first."""
    for i in range(len(new_keys)):
        sizes[_part_of(layout, new_keys[i], parts)] += 1


@kernel
def scatter_parts(layout, new_keys, offset, parts, ends, order):
    """Writes the rows of the keys of each part to `order`, from `ends` on; rows begin at `offset`."""
    for i in range(len(new_keys)):
        p = _part_of(layout, new_keys[i], parts)
        order[ends[p]] = offset + i
        ends[p] += 1


@part
def _part_of(layout, key, parts):
    h = fmix64(np.uint64(key) ^ layout[0, 0])
    return np.intp(scaled(h, layout[0, 2]) * np.uint64(parts) // layout[0, 2])


@kernel
def insert_first(keys, values, layout, state, unique, new_keys, new_values, rows):
    """Inserts those rows whose key fits into its first candidate; the others are moved to the front of `rows` and counted."""
    lanes = LINE // keys.itemsize
    tomb = keys.dtype.type(~np.uint64(1))
    left = 0
    n = len(rows)
    for i in range(n):
        if i + AHEAD < n:
            prefetch(keys, candidate(layout, 0, new_keys[rows[i + AHEAD]]) * lanes)
        row = rows[i]
        key = new_keys[row]
        if key < tomb:
            slot = candidate(layout, 0, key) * lanes
            held = np.uint32(0) if unique else match(keys, slot, key)
            if held:
                values[slot + first_lane(held)] = new_values[row]
                continue
            free = match_from(keys, slot, tomb)
            if free:
                slot += first_lane(free)
                keys[slot] = key
                values[slot] = new_values[row]
                state[LIVE] += 1
                continue
        rows[left] = row
        left += 1
    return left
