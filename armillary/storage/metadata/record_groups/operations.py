"""MDSec's handlers, which do the operations of a list one after another; a rename between directories uses intents."""

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part

from ...idmap import mix
from ..simulation.accesses import HANDOFF, emit, fence_last
from ..simulation.engine import EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, OK
from ..workload import CREATE, MKDIR, READDIR, READDIRPLUS, RENAME, RMDIR, SETATTR, UNLINK
from .groups import (
    CHILDREN,
    EXTENT,
    HIGH,
    LARGEST_EXTENT,
    ROWS,
    SEQUENCE,
    SLOTS,
    TAKEN,
    WORDS,
    add_directory,
    bit,
    bits_of,
    bucket_of,
    drop_directory,
    find,
    flip,
    free_slot,
    insert,
    is_directory,
    make_room,
    put,
    read_children,
    record_at,
    remove,
    set_attributes,
    slots_mask,
)  # fmt: skip
from .records import DIRECTORY, FILE, INLINE_NAME, INTENT

#: Accesses that one operation may need at most, besides those of splits and one for each child and group of a listing.
ROOM = 4096
#: What an operation returns that needs a larger space or table first; it has changed nothing but split buckets.
NEEDS_ROOM = 255


@part
def handler_of(directory, handlers):
    """Returns the handler that owns a directory."""
    return np.int64(mix(np.uint64(directory), np.uint64(0)) % np.uint64(handlers))


@kernel
def make(s, directory, number, kind, attributes, row, name, text, start, length, acc):
    """Creates a file or directory; returns an errno."""
    if s.row[directory] < 0:
        return ENOENT
    if find(s, directory, name, text, start, length, acc) >= 0:
        return EEXIST
    if not make_room(s, directory, name, 2 if length > INLINE_NAME else 1, acc):
        return NEEDS_ROOM
    s.place[number] = insert(s, directory, number, attributes, row, 2 if kind == DIRECTORY else 1, kind, name, text, start, length, acc)
    s.dirs[s.row[directory], CHILDREN] += 1
    if kind == DIRECTORY:
        add_directory(s, number)
    return OK


@kernel
def take_out(s, directory, want_directory, handlers, name, text, start, length, acc):
    """Unlinks a file, or removes an empty directory; returns an errno."""
    if s.row[directory] < 0:
        return ENOENT
    place = find(s, directory, name, text, start, length, acc)
    if place < 0:
        return ENOENT
    number = np.int64(s.w[record_at(s, place)])
    if is_directory(s, place):
        if not want_directory:
            return EISDIR
        if handlers > 1:
            # Only the handler that owns it can say whether it is empty.
            emit(acc, handler_of(number, handlers), 0, HANDOFF)
            emit(acc, handler_of(directory, handlers), 0, HANDOFF)
        if s.dirs[s.row[number], CHILDREN] > 0:
            return ENOTEMPTY
        drop_directory(s, number)
    elif want_directory:
        return ENOTDIR
    remove(s, place, acc)
    s.place[number] = -1
    s.dirs[s.row[directory], CHILDREN] -= 1
    return OK


@kernel
def rename(s, directory, to, handlers, name, start, length, name2, start2, length2, text, acc):
    """Moves a name, and replaces an existing one; returns an errno.

    Within one group, one header line does it. Otherwise an intent record is written first and then the new record; the replaced record, the
    old record and the intent are then removed in this order. Recovery finishes intents whose new record exists and forgets the others.
    """
    if s.row[directory] < 0 or s.row[to] < 0:
        return ENOENT
    source = find(s, directory, name, text, start, length, acc)
    if source < 0:
        return ENOENT
    number = np.int64(s.w[record_at(s, source)])
    target = find(s, to, name2, text, start2, length2, acc)
    if target == source:
        return OK
    moves_directory = is_directory(s, source)
    replaced = np.int64(0)
    if target >= 0:
        replaced = np.int64(s.w[record_at(s, target)])
        if is_directory(s, target):
            if not moves_directory:
                return EISDIR
            if s.dirs[s.row[replaced], CHILDREN] > 0:
                return ENOTEMPTY
        elif moves_directory:
            return ENOTDIR
    if moves_directory:
        up = to
        while up > 1:
            if up == number:
                return EINVAL
            up = np.int64(s.w[record_at(s, s.place[up]) + 1])
    r = record_at(s, source)
    for i in range(4):
        s.scratch[0, 3 + i] = np.int64(s.w[r + 2 + i])
    for i in range(3):
        s.scratch[0, i] = np.int64(s.h[2 * r + 12 + i])
    kind = np.int64(s.b[8 * r + 74])
    nlink = np.int64(s.h[2 * r + 16])
    s.scratch[1, 0] = np.int64(s.w[r + 10])
    s.scratch[1, 1] = np.int64(s.h[2 * r + 17])
    need = 2 if length2 > INLINE_NAME else 1
    g = source >> 6
    slot = free_slot(s, g, 0)
    slot2 = free_slot(s, g, slot + 1) if need > 1 and slot >= 0 else -1
    # A hashed directory keeps each name in its own bucket.
    d = s.row[directory]
    same_bucket = directory == to and bucket_of(s, d, name) == bucket_of(s, d, name2)
    if same_bucket and slot >= 0 and (need == 1 or slot2 >= 0) and (target < 0 or target >> 6 == g):
        place = put(s, g, slot, slot2, number, to, s.scratch, 0, nlink, kind, name2, text, start2, length2, acc)
        fence_last(acc)
        gone = bits_of(s, source)
        if target >= 0:
            gone |= bits_of(s, target)
        flip(s, g, gone, slots_mask(slot, slot2), acc)
        s.place[number] = place
    else:
        if not make_room(s, to, name2, need, acc):
            s.scratch[1, 0], s.scratch[1, 1] = 0, 0
            return NEEDS_ROOM
        low, high = handler_of(directory, handlers), handler_of(to, handlers)
        intents = 1 + min(low, high)
        s.m[SEQUENCE] += 1
        cell = s.m[SEQUENCE] % s.m[SLOTS]
        i = record_at(s, 64 * intents + cell)
        for j in range(7):
            s.scratch[2, j] = 0
        s.scratch[2, 3], s.scratch[2, 4] = to, np.int64(name2)
        s.scratch[2, 5], s.scratch[2, 6] = replaced, np.int64(name)
        s.scratch[3, 0], s.scratch[3, 1] = s.scratch[1, 0], s.scratch[1, 1]
        s.scratch[1, 0], s.scratch[1, 1] = 0, 0
        put(s, intents, cell, -1, number, directory, s.scratch, 2, 0, INTENT, name2, text, start2, 0, acc)
        fence_last(acc)
        flip(s, intents, np.uint64(0), bit(cell), acc)
        if handlers > 1:
            emit(acc, high if low <= high else low, 0, HANDOFF)
        s.scratch[1, 0], s.scratch[1, 1] = s.scratch[3, 0], s.scratch[3, 1]
        place = insert(s, to, number, s.scratch, 0, nlink, kind, name2, text, start2, length2, acc)
        if replaced:
            remove(s, s.place[replaced], acc)
        if handlers > 1:
            emit(acc, low if low <= high else high, 0, HANDOFF)
        remove(s, s.place[number], acc)
        s.place[number] = place
        flip(s, intents, bit(cell), np.uint64(0), acc)
    s.scratch[1, 0], s.scratch[1, 1] = 0, 0
    if replaced:
        if s.row[replaced] >= 0:
            drop_directory(s, replaced)
        s.place[replaced] = -1
        s.dirs[s.row[to], CHILDREN] -= 1
    s.dirs[s.row[directory], CHILDREN] -= 1
    s.dirs[s.row[to], CHILDREN] += 1
    return OK


@part
def has_room(s, acc, accesses):
    """Returns whether a single operation, but for its splits, fits into the space, the tables and the list."""
    slots = s.m[SLOTS]
    return (
        (s.m[HIGH] + 2 * LARGEST_EXTENT + s.m[EXTENT] + 2) * s.m[WORDS] <= len(s.w)
        and s.m[HIGH] + 2 * LARGEST_EXTENT + 64 <= len(s.link)
        and (s.m[HIGH] + 2 * LARGEST_EXTENT + 2) * slots <= len(s.tags)
        and s.m[ROWS] + 2 <= len(s.dirs)
        and acc[0, 0] + ROOM + accesses <= len(acc)
    )


@kernel
def run(s, ops, attributes, text, offsets, hashes, first, last, handlers, acc, ends, status, out):
    """Does operations [first, last) and returns how far it came; it stops where space, tables or list run out. ends[i] counts accesses."""
    for i in range(first, last):
        kind, directory, number = ops[i, 0], ops[i, 1], ops[i, 3]
        start, length = offsets[ops[i, 2]], offsets[ops[i, 2] + 1] - offsets[ops[i, 2]]
        name = hashes[ops[i, 2]]
        row = ops[i, 7]
        d = s.row[directory]
        if not has_room(s, acc, s.dirs[d, CHILDREN] + 2 * s.dirs[d, TAKEN] if d >= 0 else 0):
            return i
        if kind in (CREATE, MKDIR):
            what = DIRECTORY if kind == MKDIR else FILE
            status[i] = make(s, directory, number, what, attributes, row, name, text, start, length, acc)
        elif kind in (UNLINK, RMDIR):
            status[i] = take_out(s, directory, kind == RMDIR, handlers, name, text, start, length, acc)
        elif kind in (READDIR, READDIRPLUS):
            if s.row[directory] >= 0:
                if s.dirs[s.row[directory], 0] != 0:
                    read_children(s, directory, out, acc)
            else:
                status[i] = ENOENT
        elif kind == RENAME:
            second = ops[i, 5]
            start2, length2 = offsets[second], offsets[second + 1] - offsets[second]
            status[i] = rename(s, directory, ops[i, 4], handlers, name, start, length, hashes[second], start2, length2, text, acc)
        else:
            place = find(s, directory, name, text, start, length, acc) if s.row[directory] >= 0 else -1
            if place < 0:
                status[i] = ENOENT
            elif kind == SETATTR:
                set_attributes(s, place, attributes, row, acc)
        if status[i] == NEEDS_ROOM:
            status[i] = OK
            return i
        ends[i - first] = acc[0, 0]
    return last
