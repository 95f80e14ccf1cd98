"""MDSec's operations on its byte space: where a directory's records go, and in which order they are written, in Numba and without locks.

`Layout` is the space (as bytes, and as 64-bit and 32-bit words of the same memory) and the indexes in host memory that can be rebuilt
from it: the place of each id, a tag of each record's name, and one row per directory. Every kernel appends its accesses to a list. Names
are compared on the device, and the tags only tell which group to read.

Crash safety: new data is written first and fenced, and then one line makes it valid. Nothing that a crash can leave behind is reachable,
except stale records in shared groups, which recovery recognises by the directory's pointer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.kernels import kernel, part

from ..simulation.accesses import FENCE, HINT, READ, WRITE, emit, fence_last
from .records import (
    DEEPEST,
    DIRECTORY,
    EXTENSION,
    INLINE_NAME,
    NAME_AT,
    OWN,
    RECORD,
    SHARED,
    TINY,
    extensions_of,
    joined_hash,
    kind_of,
    name_length,
    seal_header,
    seal_line0,
    seal_line1,
    write_extension,
    write_record,
)  # fmt: skip


class Layout(NamedTuple):
    """The space and its indexes in host memory."""

    b: np.ndarray
    w: np.ndarray
    h: np.ndarray
    #: int64 per id: 64 * group + slot, -1 where there is none.
    place: np.ndarray
    #: int32 per id: row in `dirs`, -1 for what is no directory.
    row: np.ndarray
    #: int64 with one row per directory and the columns below.
    dirs: np.ndarray
    #: int64: the bucket tables of hashed directories, one behind the other.
    table: np.ndarray
    #: uint32[groups * slots]: 32 bits of each record's name hash.
    tags: np.ndarray
    #: int32 per group: the next in a list of groups (shared ones of a directory, or free ones).
    link: np.ndarray
    #: int64: the numbers below.
    m: np.ndarray
    #: int64[4, 7]: attributes of a record on its way to another place; row 1 starts with the pointer and flags that `put` gives a record.
    scratch: np.ndarray


HEAD, EXTENT_NEXT, EXTENT_LEFT, EXTENT_SIZE, TABLE, DEPTH, CHILDREN, SHARED_LIST, IS_TINY, FREE_LIST, FIRST_EXTENT, OWN_ID = range(12)
#: Groups that the directory has taken.
TAKEN = 12
COLUMNS = 13
HIGH, ROWS, TABLE_USED, NEXT_ID, SLOTS, WORDS, TINY_MOST, CHAIN, EXTENT, FREE_EXTENTS, SEQUENCE, KEY0, KEY1 = range(13)
NUMBERS = 16
LARGEST_EXTENT = 256
#: Buckets that a directory's table may have for each bucket that its children fill. Hashes that agree in many bits then lead to long
#: buckets and not to large tables.
SPARSEST = 8
#: Shared groups looked at for room, and free slots that a newcomer wants there.
SHARED_TRIES, SHARED_ROOM = 8, 3


@part
def record_at(s, place):
    """Returns the record's offset in 64-bit words."""
    return s.m[WORDS] * (place >> 6) + 32 * ((place & 63) + 1)


@part
def bit(slot):
    return np.uint64(1) << np.uint64(slot)


@part
def slots_taken(s, g):
    x = s.w[g * s.m[WORDS] + 1]
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@part
def next_of(s, g):
    return np.int64(s.w[g * s.m[WORDS] + 2])


@part
def next_bucket(s, g):
    return np.int64(s.w[g * s.m[WORDS] + 3])


@part
def tag_of(name):
    return np.uint32(name >> np.uint64(16))


@part
def fingerprint_at(s, g, slot):
    return 8 * g * s.m[WORDS] + (48 if s.m[SLOTS] <= 15 else 64) + slot


@part
def bucket_of(s, d, name):
    """Returns the first group of the bucket that holds names with this hash."""
    depth = s.dirs[d, DEPTH]
    if depth == 0:
        return s.dirs[d, HEAD]
    return s.table[s.dirs[d, TABLE] + np.int64((name >> np.uint64(8)) & np.uint64((1 << depth) - 1))]


@kernel
def same_name(s, place, text, start, length):
    """Returns whether the record's name is this one."""
    r = record_at(s, place)
    if name_length(s.h, r) != length:
        return False
    at = 8 * r + NAME_AT
    for i in range(min(length, INLINE_NAME)):
        if s.b[at + i] != text[start + i]:
            return False
    if length > INLINE_NAME:
        more = extension_place(s, place)
        if more < 0:
            return False
        at = 8 * record_at(s, more) + NAME_AT - INLINE_NAME
        for i in range(INLINE_NAME, length):
            if s.b[at + i] != text[start + i]:
                return False
    return True


@kernel
def extension_place(s, place):
    """Returns where the record's extension is, in the same group; -1 if it has none."""
    r = record_at(s, place)
    if extensions_of(s.b, r) == 0:
        return -1
    g = place >> 6
    taken = s.w[g * s.m[WORDS] + 1]
    for slot in range(s.m[SLOTS]):
        if taken & bit(slot):
            other = record_at(s, 64 * g + slot)
            of_it = s.w[other] == s.w[r] and s.w[other + 1] == s.w[r + 1] and s.w[other + 10] == np.uint64(place & 63)
            if of_it and kind_of(s.b, other) == EXTENSION:
                return 64 * g + slot
    return -1


@kernel
def find(s, directory, name, text, start, length, acc):
    """Returns the place of a directory's child by its name, or -1. It reads one header line and one record, unless tags collide."""
    d = s.row[directory]
    g = bucket_of(s, d, name)
    tag = tag_of(name)
    slots = s.m[SLOTS]
    while g != 0:
        taken = s.w[g * s.m[WORDS] + 1]
        looked = False
        for slot in range(slots):
            if taken & bit(slot) and s.tags[g * slots + slot] == tag:
                place = 64 * g + slot
                r = record_at(s, place)
                if kind_of(s.b, r) == EXTENSION:
                    continue
                if not looked:
                    emit(acc, 8 * g * s.m[WORDS], 64 if slots <= 15 else 128, READ)
                    looked = True
                if s.b[fingerprint_at(s, g, slot)] != np.uint8(name & np.uint64(255)):
                    continue
                emit(acc, 8 * r, RECORD, READ)
                if extensions_of(s.b, r):
                    emit(acc, 8 * record_at(s, extension_place(s, place)), RECORD, READ)
                if np.int64(s.w[r + 1]) == directory and same_name(s, place, text, start, length):
                    return place
        if s.dirs[d, IS_TINY]:
            return -1
        g = next_of(s, g)
    return -1


@kernel
def new_group(s, d):
    """Takes a group for directory row d, from its own free ones, its extent, or a new extent twice as large."""
    free = s.dirs[d, FREE_LIST]
    if free != 0:
        s.dirs[d, FREE_LIST] = s.link[free]
        return free
    if s.dirs[d, EXTENT_LEFT] == 0:
        size = s.dirs[d, EXTENT_SIZE]
        size = s.m[EXTENT] if size == 0 else min(2 * size, LARGEST_EXTENT)
        if size == s.m[EXTENT] and s.m[FREE_EXTENTS] != 0:
            first = s.m[FREE_EXTENTS]
            s.m[FREE_EXTENTS] = s.link[first]
        else:
            first = s.m[HIGH]
            s.m[HIGH] += size
        if s.dirs[d, EXTENT_SIZE] == 0:
            s.dirs[d, FIRST_EXTENT] = first
        s.dirs[d, EXTENT_SIZE] = size
        s.dirs[d, EXTENT_LEFT] = size
        s.dirs[d, EXTENT_NEXT] = first
    g = s.dirs[d, EXTENT_NEXT]
    s.dirs[d, EXTENT_NEXT] += 1
    s.dirs[d, EXTENT_LEFT] -= 1
    s.dirs[d, TAKEN] += 1
    return g


@kernel
def start_header(s, g, owner, kind, depth, prefix):
    """Clears a group's header in the space; it is sealed and emitted by whoever fills the group."""
    at = g * s.m[WORDS]
    for i in range(at, at + 32):
        s.w[i] = np.uint64(0)
    s.w[at] = np.uint64(owner)
    s.h[2 * at + 9] = np.uint32(prefix)
    s.b[8 * at + 44] = np.uint8(depth)
    s.b[8 * at + 45] = np.uint8(kind)


@kernel
def flip(s, g, clear, take, acc):
    """Writes the line that makes changes of a group valid (bitmap, fingerprints and generation), and then a fence."""
    at = g * s.m[WORDS]
    s.w[at + 1] = (s.w[at + 1] & ~clear) | take
    s.h[2 * at + 8] += np.uint32(1)
    seal_header(s.w, s.h, at)
    if s.m[SLOTS] > 15 and take:
        emit(acc, 8 * at + 64, 64, WRITE | FENCE)
    emit(acc, 8 * at, 64, WRITE | FENCE)


@part
def free_slot(s, g, after):
    """Returns the first free slot of a group from `after` on, or -1."""
    taken = s.w[g * s.m[WORDS] + 1]
    for slot in range(after, s.m[SLOTS]):
        if not taken & bit(slot):
            return slot
    return -1


@kernel
def put(s, g, slot, slot2, number, parent, attributes, row, nlink, kind, name, text, start, length, acc):
    """Writes a record and its extension into free slots of a group; they count only once the header says so."""
    place = 64 * g + slot
    r = record_at(s, place)
    extensions = 1 if length > INLINE_NAME else 0
    pointer, flags = s.scratch[1, 0], s.scratch[1, 1]
    write_record(s.b, s.w, s.h, r, number, parent, attributes, row, nlink, flags, kind, extensions, pointer, text, start, length)
    emit(acc, 8 * r, RECORD, WRITE)
    slots = s.m[SLOTS]
    s.tags[g * slots + slot] = tag_of(name)
    s.b[fingerprint_at(s, g, slot)] = np.uint8(name & np.uint64(255))
    if extensions:
        more = record_at(s, 64 * g + slot2)
        write_extension(s.b, s.w, s.h, more, number, parent, text, start, length)
        s.w[more + 10] = np.uint64(slot)
        seal_line1(s.w, s.h, more)
        emit(acc, 8 * more, RECORD, WRITE)
    return place


@part
def slots_mask(slot, slot2):
    return bit(slot) | (bit(slot2) if slot2 >= 0 else np.uint64(0))


@kernel
def copy_record(s, source, g, slot):
    """Copies a record to a free slot of another group, in the space and in the indexes; returns where it is, in words."""
    r, to = record_at(s, source), record_at(s, 64 * g + slot)
    for i in range(32):
        s.w[to + i] = s.w[r + i]
    slots = s.m[SLOTS]
    s.tags[g * slots + slot] = s.tags[(source >> 6) * slots + (source & 63)]
    s.b[fingerprint_at(s, g, slot)] = s.b[fingerprint_at(s, source >> 6, source & 63)]
    return to


@kernel
def copy_child(s, source, g, acc):
    """Copies a child and its extension into a group that has room, and takes their bits there."""
    slot = free_slot(s, g, 0)
    r = record_at(s, source)
    more = extension_place(s, source)
    emit(acc, 8 * copy_record(s, source, g, slot), RECORD, WRITE)
    at = g * s.m[WORDS] + 1
    s.w[at] |= bit(slot)
    s.place[np.int64(s.w[r])] = 64 * g + slot
    if more >= 0:
        second = free_slot(s, g, 0)
        other = copy_record(s, more, g, second)
        s.w[other + 10] = np.uint64(slot)
        seal_line1(s.w, s.h, other)
        emit(acc, 8 * other, RECORD, WRITE)
        s.w[at] |= bit(second)


@kernel
def point(s, directory, g, tiny, acc):
    """Points a directory's record at its group set by writing one line, and then a fence."""
    r = record_at(s, s.place[directory])
    s.w[r + 10] = np.uint64(g)
    s.h[2 * r + 17] = np.uint32(TINY if tiny else 0)
    seal_line1(s.w, s.h, r)
    emit(acc, 8 * r + 64, 64, WRITE | FENCE)
    d = s.row[directory]
    s.dirs[d, HEAD] = g
    s.dirs[d, IS_TINY] = 1 if tiny else 0


@kernel
def shared_group(s, parent, room, acc):
    """Finds or makes a group that the tiny directories under `parent` share, with room for `room` records."""
    d = s.row[parent]
    g = s.dirs[d, SHARED_LIST]
    tries = 0
    while g != 0 and tries < SHARED_TRIES:
        if s.m[SLOTS] - slots_taken(s, g) >= room:
            return g
        g = s.link[g]
        tries += 1
    g = new_group(s, d)
    start_header(s, g, parent, SHARED, 0, 0)
    s.link[g] = s.dirs[d, SHARED_LIST]
    s.dirs[d, SHARED_LIST] = g
    return g


@kernel
def insert_tiny(s, directory, need, number, attributes, row, nlink, kind, name, text, start, length, acc):
    """Adds a child to a directory that shares a group, or that moves into groups of its own because it is too large; returns its place."""
    d = s.row[directory]
    old = s.dirs[d, HEAD]
    parent = np.int64(s.w[record_at(s, s.place[directory]) + 1])
    held = np.uint64(0)
    count = 0
    if old != 0:
        taken = s.w[old * s.m[WORDS] + 1]
        for slot in range(s.m[SLOTS]):
            if taken & bit(slot) and np.int64(s.w[record_at(s, 64 * old + slot) + 1]) == directory:
                held |= bit(slot)
                count += 1
        if count + need <= s.m[TINY_MOST] and s.m[SLOTS] - slots_taken(s, old) >= need:
            slot = free_slot(s, old, 0)
            slot2 = free_slot(s, old, slot + 1) if need > 1 else -1
            place = put(s, old, slot, slot2, number, directory, attributes, row, nlink, kind, name, text, start, length, acc)
            fence_last(acc)
            flip(s, old, np.uint64(0), slots_mask(slot, slot2), acc)
            return place
    stays_tiny = count + need <= s.m[TINY_MOST]
    if stays_tiny:
        g = shared_group(s, parent, max(SHARED_ROOM, count + need), acc)
    else:
        g = new_group(s, d)
        start_header(s, g, directory, OWN, 0, 0)
    before = s.w[g * s.m[WORDS] + 1]
    for child in range(s.m[SLOTS]):
        if held & bit(child) and kind_of(s.b, record_at(s, 64 * old + child)) != EXTENSION:
            copy_child(s, 64 * old + child, g, acc)
    take = s.w[g * s.m[WORDS] + 1]
    if s.m[SLOTS] - slots_taken(s, g) >= need:
        slot = free_slot(s, g, 0)
        slot2 = free_slot(s, g, slot + 1) if need > 1 else -1
        place = put(s, g, slot, slot2, number, directory, attributes, row, nlink, kind, name, text, start, length, acc)
        take |= slots_mask(slot, slot2)
    else:
        # The old children fill the group, so the new one opens the next.
        second = new_group(s, d)
        start_header(s, second, directory, OWN, 0, 0)
        slot2 = 1 if need > 1 else -1
        place = put(s, second, 0, slot2, number, directory, attributes, row, nlink, kind, name, text, start, length, acc)
        flip(s, second, np.uint64(0), slots_mask(0, slot2), acc)
        s.w[g * s.m[WORDS] + 2] = np.uint64(second)
    # In the space nothing of this was true yet: the header line below makes the copies valid, the pointer makes them the directory.
    s.w[g * s.m[WORDS] + 1] = before
    fence_last(acc)
    flip(s, g, np.uint64(0), take, acc)
    point(s, directory, g, stays_tiny, acc)
    if held:
        flip(s, old, held, np.uint64(0), acc)
    return place


@kernel
def split(s, directory, head, acc):
    """Splits a full bucket in two by the next bit of the hash; the header line of the first group makes it valid.

    The bucket's first group stays and keeps its records of the lower half. The other records are packed into new groups, and the directory
    can use the emptied groups again.
    """
    d = s.row[directory]
    words, slots = s.m[WORDS], s.m[SLOTS]
    depth = np.int64(s.b[8 * head * words + 44])
    prefix = np.int64(s.h[2 * head * words + 9])
    first_low = np.int64(0)
    first_high = np.int64(0)
    low = np.int64(0)
    high = np.int64(0)
    stays = np.uint64(0)
    g = head
    while g != 0:
        taken = s.w[g * words + 1]
        for slot in range(slots):
            if not taken & bit(slot):
                continue
            place = 64 * g + slot
            r = record_at(s, place)
            if kind_of(s.b, r) == EXTENSION:
                continue
            need = 1 + extensions_of(s.b, r)
            # The tag holds the hash's bits 16 to 47; the bucket goes by bits 8 on, so the name is hashed by its record.
            upper = (hash_of_record(s, place) >> np.uint64(8 + depth)) & np.uint64(1)
            if g == head and upper == 0:
                stays |= bit(slot)
                if need > 1:
                    stays |= bit(extension_place(s, place) & 63)
                continue
            to = high if upper else low
            if to == 0 or slots - slots_taken(s, to) < need:
                fresh = new_group(s, d)
                start_header(s, fresh, directory, OWN, depth + 1, prefix | (np.int64(upper) << depth))
                if to != 0:
                    s.w[to * words + 2] = np.uint64(fresh)
                    seal_header(s.w, s.h, to * words)
                    emit(acc, 8 * to * words, 64 if slots <= 15 else 128, WRITE)
                if upper:
                    if high == 0:
                        first_high = fresh
                    high = fresh
                else:
                    if low == 0:
                        first_low = fresh
                    low = fresh
                to = fresh
            copy_child(s, place, to, acc)
        g = next_of(s, g)
    if first_high == 0:
        first_high = new_group(s, d)
        start_header(s, first_high, directory, OWN, depth + 1, prefix | (np.int64(1) << depth))
        high = first_high
    s.w[first_high * words + 3] = s.w[head * words + 3]
    for group in (first_high, high, low):
        if group != 0:
            seal_header(s.w, s.h, group * words)
            emit(acc, 8 * group * words, 64 if slots <= 15 else 128, WRITE)
    fence_last(acc)
    old = next_of(s, head)
    at = head * words
    s.w[at + 2] = np.uint64(first_low)
    s.w[at + 3] = np.uint64(first_high)
    s.b[8 * at + 44] = np.uint8(depth + 1)
    flip(s, head, ~stays, np.uint64(0), acc)
    while old != 0:
        after = next_of(s, old)
        s.link[old] = s.dirs[d, FREE_LIST]
        s.dirs[d, FREE_LIST] = old
        old = after
    index_bucket(s, d, first_high, depth + 1, prefix | (np.int64(1) << depth))
    index_bucket(s, d, head, depth + 1, prefix)


@kernel
def index_bucket(s, d, head, depth, prefix):
    """Enters a bucket into the directory's table in host memory, which doubles if necessary."""
    global_depth = s.dirs[d, DEPTH]
    if depth > global_depth:
        size = 1 << global_depth
        start = s.m[TABLE_USED]
        s.m[TABLE_USED] += 1 << depth
        for i in range(1 << depth):
            s.table[start + i] = s.dirs[d, HEAD] if global_depth == 0 else s.table[s.dirs[d, TABLE] + (i & (size - 1))]
        s.dirs[d, TABLE] = start
        s.dirs[d, DEPTH] = depth
        global_depth = depth
    step = 1 << depth
    for i in range(prefix, 1 << global_depth, step):
        s.table[s.dirs[d, TABLE] + i] = head


@kernel
def hash_of_record(s, place):
    """Returns the hash of a record's name, from its bytes."""
    r = record_at(s, place)
    length = name_length(s.h, r)
    more = 8 * record_at(s, extension_place(s, place)) + NAME_AT if length > INLINE_NAME else 0
    inline = min(length, INLINE_NAME)
    return joined_hash(s.b, 8 * r + NAME_AT, inline, more, length - inline, s.m[KEY0], s.m[KEY1])


@part
def wants_split(s, d, head, groups):
    """Returns whether a full bucket of this many groups splits: one that is long, in a directory large enough for a table twice as deep."""
    depth = np.int64(s.b[8 * head * s.m[WORDS] + 44])
    return (
        groups >= s.m[CHAIN]
        and depth < DEEPEST
        and (s.dirs[d, CHILDREN] + 1) * SPARSEST >= (np.int64(1) << depth) * s.m[CHAIN] * s.m[SLOTS]
    )


@part
def has_room_to_split(s, d, head, groups, acc):
    """Returns whether a bucket of this many groups can be split within the space, the tables and the access list."""
    depth = np.int64(s.b[8 * head * s.m[WORDS] + 44]) + 1
    high = s.m[HIGH] + 2 * groups + 2 * LARGEST_EXTENT + s.m[EXTENT] + 2
    table = np.int64(1) << depth if depth > s.dirs[d, DEPTH] else 0
    return (
        (high + 1) * s.m[WORDS] <= len(s.w)
        and high < len(s.link)
        and high * s.m[SLOTS] <= len(s.tags)
        and s.m[TABLE_USED] + table <= len(s.table)
        and acc[0, 0] + (s.m[SLOTS] + 8) * groups + 64 < len(acc)
    )


@kernel
def make_room(s, directory, name, need, acc):
    """Splits the bucket of a name until `insert` needs at most one new group; False if the host must grow the space or the tables first.

    A split is complete in itself, so an operation may stop here and begin anew.
    """
    d = s.row[directory]
    if s.dirs[d, IS_TINY] or s.dirs[d, HEAD] == 0:
        return True
    while True:
        head = bucket_of(s, d, name)
        g, groups = head, 0
        while g != 0 and s.m[SLOTS] - slots_taken(s, g) < need:
            g = next_of(s, g)
            groups += 1
        if g != 0 or not wants_split(s, d, head, groups):
            return True
        if not has_room_to_split(s, d, head, groups, acc):
            return False
        split(s, directory, head, acc)


@kernel
def insert(s, directory, number, attributes, row, nlink, kind, name, text, start, length, acc):
    """Adds a child; the caller knows that the name is free and has called `make_room`. Returns its place."""
    d = s.row[directory]
    need = 2 if length > INLINE_NAME else 1
    if s.dirs[d, IS_TINY] or (s.dirs[d, HEAD] == 0 and s.m[TINY_MOST] >= need and directory != 1):
        return insert_tiny(s, directory, need, number, attributes, row, nlink, kind, name, text, start, length, acc)
    words = s.m[WORDS]
    head = bucket_of(s, d, name)
    g = head
    last = np.int64(0)
    while g != 0 and s.m[SLOTS] - slots_taken(s, g) < need:
        last = g
        g = next_of(s, g)
    if g != 0:
        slot = free_slot(s, g, 0)
        slot2 = free_slot(s, g, slot + 1) if need > 1 else -1
        place = put(s, g, slot, slot2, number, directory, attributes, row, nlink, kind, name, text, start, length, acc)
        fence_last(acc)
        flip(s, g, np.uint64(0), slots_mask(slot, slot2), acc)
        return place
    g = new_group(s, d)
    depth, prefix = (s.b[8 * head * words + 44], s.h[2 * head * words + 9]) if head != 0 else (np.uint8(0), np.uint32(0))
    start_header(s, g, directory, OWN, depth, prefix)
    place = put(s, g, 0, 1 if need > 1 else -1, number, directory, attributes, row, nlink, kind, name, text, start, length, acc)
    flip(s, g, np.uint64(0), slots_mask(0, 1 if need > 1 else -1), acc)
    if last == 0:
        point(s, directory, g, False, acc)
    else:
        s.w[last * words + 2] = np.uint64(g)
        flip(s, last, np.uint64(0), np.uint64(0), acc)
    return place


@kernel
def bits_of(s, place):
    """Returns the header bits of a record and its extension."""
    more = extension_place(s, place)
    return slots_mask(place & 63, more & 63 if more >= 0 else -1)


@kernel
def remove(s, place, acc):
    """Removes a record by writing one header line."""
    flip(s, place >> 6, bits_of(s, place), np.uint64(0), acc)


@kernel
def add_directory(s, number):
    """Gives a new directory its row in host memory."""
    d = s.m[ROWS]
    s.m[ROWS] += 1
    s.row[number] = d
    for i in range(COLUMNS):
        s.dirs[d, i] = 0
    s.dirs[d, OWN_ID] = number


@kernel
def drop_directory(s, number):
    """Forgets an empty directory; its first extent can be used again at once."""
    d = s.row[number]
    first = s.dirs[d, FIRST_EXTENT]
    if first != 0 and not s.dirs[d, IS_TINY] and s.dirs[d, SHARED_LIST] == 0:
        s.link[first] = s.m[FREE_EXTENTS]
        s.m[FREE_EXTENTS] = first
    s.row[number] = -1


@kernel
def read_children(s, directory, out, acc):
    """Writes the places of all children into `out` and returns their number. A readahead hint lets the fills of 16 groups overlap."""
    d = s.row[directory]
    slots, words = s.m[SLOTS], s.m[WORDS]
    head = s.dirs[d, HEAD]
    n = 0
    if s.dirs[d, IS_TINY]:
        emit(acc, 8 * head * words, 64, READ)
        low, high = slots, -1
        taken = s.w[head * words + 1]
        for slot in range(slots):
            if taken & bit(slot) and np.int64(s.w[record_at(s, 64 * head + slot) + 1]) == directory:
                low, high = min(low, slot), slot
                if kind_of(s.b, record_at(s, 64 * head + slot)) != EXTENSION:
                    out[n] = 64 * head + slot
                    n += 1
        if high >= low:
            emit(acc, 8 * record_at(s, 64 * head + low), RECORD * (high - low + 1), READ)
        return n
    bucket = head
    g = head
    ahead_bucket, ahead = head, head
    hinted = 0
    done = 0
    while g != 0:
        while ahead != 0 and hinted < done + 2 * s.m[EXTENT]:
            if hinted > 0:
                emit(acc, 8 * ahead * words, 64, HINT)
            hinted += 1
            ahead = next_of(s, ahead)
            if ahead == 0:
                ahead_bucket = next_bucket(s, ahead_bucket)
                ahead = ahead_bucket
        taken = s.w[g * words + 1]
        highest = -1
        for slot in range(slots):
            if taken & bit(slot):
                highest = slot
                if kind_of(s.b, record_at(s, 64 * g + slot)) != EXTENSION:
                    out[n] = 64 * g + slot
                    n += 1
        emit(acc, 8 * g * words, RECORD * (highest + 2), READ)
        done += 1
        g = next_of(s, g)
        if g == 0:
            bucket = next_bucket(s, bucket)
            g = bucket
    return n


@kernel
def set_attributes(s, place, attributes, row, acc):
    """Replaces a record's attributes by writing its first line as a whole, and then a fence."""
    r = record_at(s, place)
    s.w[r + 2] = np.uint64(attributes[row, 3])
    s.w[r + 3] = np.uint64(attributes[row, 4])
    s.w[r + 4] = np.uint64(attributes[row, 5])
    s.w[r + 5] = np.uint64(attributes[row, 6])
    s.h[2 * r + 12] = np.uint32(attributes[row, 0])
    s.h[2 * r + 13] = np.uint32(attributes[row, 1])
    s.h[2 * r + 14] = np.uint32(attributes[row, 2])
    seal_line0(s.w, s.h, r)
    emit(acc, 8 * r, 64, WRITE | FENCE)


@part
def is_directory(s, place):
    return kind_of(s.b, record_at(s, place)) == DIRECTORY
