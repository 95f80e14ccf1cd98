"""Recovery after a start: the indexes in host memory are rebuilt from the space, and whatever a crash interrupted is repaired.

Every intent whose new record is complete is finished, and the others are forgotten. Stale records are taken out of shared groups. Numba
walks over the space, and Python decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel

from .groups import (
    CHILDREN,
    EXTENT,
    FREE_EXTENTS,
    HEAD,
    HIGH,
    IS_TINY,
    NEXT_ID,
    ROWS,
    SHARED_LIST,
    SLOTS,
    TABLE_USED,
    WORDS,
    add_directory,
    bit,
    flip,
    hash_of_record,
    index_bucket,
    record_at,
    tag_of,
)  # fmt: skip
from .inspection import Reader, hash_of
from .records import DIRECTORY, EXTENSION, ROOT, TINY, header_ok, kind_of, name_length, record_ok, seal_header

if TYPE_CHECKING:
    from .groups import Layout

FINE, BAD_HEADER, BAD_RECORD, BAD_LINK, BAD_ID, MORE_ROWS = 0, 1, 2, 3, 4, 5
WORDS_FOR = {BAD_HEADER: "wrong checksum of a header", BAD_RECORD: "wrong checksum of a record", BAD_LINK: "a link that leads nowhere",
             BAD_ID: "an id that is too large"}  # fmt: skip


def recover(s: Layout, handlers: int, acc: np.ndarray, where: str) -> int:
    """Rebuilds the indexes and returns the number of intents that were finished or undone; damaged bytes raise InputError."""
    scan(s, handlers, where)
    settled = _settle_intents(s, handlers, acc, where)
    if settled:
        scan(s, handlers, where)
    return settled


def scan(s: Layout, handlers: int, where: str) -> None:
    """Walks from the root and fills the indexes; stale records of shared groups are cleared on the way."""
    used = np.zeros(len(s.link), np.uint8)
    s.place[:], s.row[:], s.link[:] = -1, -1, 0
    s.m[ROWS], s.m[TABLE_USED], s.m[FREE_EXTENTS] = 0, 0, 0
    result = np.zeros(2, np.int64)
    _scan(s, handlers, used, result)
    if result[0] == MORE_ROWS:
        raise MemoryError("more directories than rows")
    if result[0] != FINE:
        raise InputError(f"group {result[1]}: {WORDS_FOR[int(result[0])]}", where=where)
    taken = np.flatnonzero(used)
    s.m[HIGH] = int(taken[-1]) + 1
    # Stretches that nobody uses, in whole extents.
    size = int(s.m[EXTENT])
    gaps = np.flatnonzero(np.diff(taken) > size)
    for gap in gaps.tolist():
        for first in range(int(taken[gap]) + 1, int(taken[gap + 1]) - size + 1, size):
            s.link[first] = s.m[FREE_EXTENTS]
            s.m[FREE_EXTENTS] = first


@kernel
def _scan(s, handlers, used, result):
    slots, words = s.m[SLOTS], s.m[WORDS]
    groups = len(s.w) // words
    for g in range(handlers + 2):
        used[g] = 1
    home = handlers + 1
    for g in range(1, home + 1):
        if not header_ok(s.w, s.h, g * words):
            result[0], result[1] = BAD_HEADER, g
            return
    r = record_at(s, 64 * home)
    if not record_ok(s.w, s.h, r) or s.w[home * words + 1] != np.uint64(1):
        result[0], result[1] = BAD_RECORD, home
        return
    s.place[ROOT] = 64 * home
    add_directory(s, ROOT)
    most = np.int64(ROOT)
    d = 0
    while d < s.m[ROWS]:
        directory = s.dirs[d, 11]
        r = record_at(s, s.place[directory])
        head = np.int64(s.w[r + 10])
        tiny = s.h[2 * r + 17] & np.uint32(TINY) != 0
        s.dirs[d, HEAD], s.dirs[d, IS_TINY] = head, 1 if tiny else 0
        bucket = head
        while bucket != 0:
            g = bucket
            following = np.int64(0)
            while g != 0:
                if g <= home or g >= groups or (used[g] and not (tiny and used[g] == 2)):
                    result[0], result[1] = BAD_LINK, g
                    return
                at = g * words
                if not header_ok(s.w, s.h, at):
                    result[0], result[1] = BAD_HEADER, g
                    return
                used[g] = 2 if tiny else 1
                if g == bucket and not tiny:
                    following = np.int64(s.w[at + 3])
                    depth = np.int64(s.b[8 * at + 44])
                    if depth > 0:
                        if depth > 24 or s.m[TABLE_USED] + (2 << depth) > len(s.table):
                            result[0], result[1] = BAD_LINK, g
                            return
                        index_bucket(s, d, g, depth, np.int64(s.h[2 * at + 9]) & ((1 << depth) - 1))
                taken = s.w[at + 1]
                for slot in range(slots):
                    if not taken & bit(slot):
                        continue
                    place = 64 * g + slot
                    r = record_at(s, place)
                    if tiny and np.int64(s.w[r + 1]) != directory:
                        continue
                    if not record_ok(s.w, s.h, r) or np.int64(s.w[r + 1]) != directory or name_length(s.h, r) > 255:
                        result[0], result[1] = BAD_RECORD, g
                        return
                    if kind_of(s.b, r) == EXTENSION:
                        continue
                    number = np.int64(s.w[r])
                    if number <= ROOT or number >= len(s.place):
                        result[0], result[1] = BAD_ID, g
                        return
                    most = max(most, number)
                    s.tags[g * slots + slot] = tag_of(hash_of_record(s, place))
                    s.place[number] = place
                    s.dirs[d, CHILDREN] += 1
                    if kind_of(s.b, r) == DIRECTORY and s.row[number] < 0:
                        if s.m[ROWS] + 1 >= len(s.dirs):
                            result[0] = MORE_ROWS
                            return
                        add_directory(s, number)
                g = np.int64(0) if tiny else np.int64(s.w[at + 2])
            bucket = following
        d += 1
    s.m[NEXT_ID] = max(s.m[NEXT_ID], most + 1)
    for g in range(home + 1, groups):
        if used[g] == 2:
            _clear_stale(s, g)
            owner = np.int64(s.w[g * words])
            if 0 < owner < len(s.row) and s.row[owner] >= 0:
                s.link[g] = s.dirs[s.row[owner], SHARED_LIST]
                s.dirs[s.row[owner], SHARED_LIST] = g


@kernel
def _clear_stale(s, g):
    """Removes records of directories that do not point to this group, no longer or not yet."""
    from_bits = s.w[g * s.m[WORDS] + 1]
    gone = np.uint64(0)
    for slot in range(s.m[SLOTS]):
        if from_bits & bit(slot):
            parent = np.int64(s.w[record_at(s, 64 * g + slot) + 1])
            if parent <= 0 or parent >= len(s.row) or s.row[parent] < 0 or s.dirs[s.row[parent], HEAD] != g:
                gone |= bit(slot)
    if gone:
        at = g * s.m[WORDS]
        s.w[at + 1] &= ~gone
        s.h[2 * at + 8] += np.uint32(1)
        seal_header(s.w, s.h, at)


def _settle_intents(s: Layout, handlers: int, acc: np.ndarray, where: str) -> int:
    reader = Reader(s.b, 8 * int(s.m[WORDS]), len(s.b) // (8 * int(s.m[WORDS])))
    settled = 0
    for group in range(1, handlers + 1):
        bitmap = reader.header(group)[1]
        for intent in reader.records(group, bitmap):
            source, to = intent.parent, intent.size
            new_hash, replaced, old_hash = intent.times[0] & (2**64 - 1), intent.times[1], intent.times[2] & (2**64 - 1)
            acc[0, 0] = 0
            places: dict[int, list[tuple[int, int, int, int]]] = {}
            for directory in {source, to}:
                if not 0 < directory < len(s.place) or s.row[directory] < 0:
                    continue
                place = int(s.place[directory])
                home = reader.records(place >> 6, 1 << (place & 63) | reader.header(place >> 6)[1])
                record = next(r for r in home if r.slot == place & 63)
                places[directory] = [
                    (r.id, hash_of(r.name), r.group, _bits(r.slot, r.extension)) for r in reader.children(record, reader.set_of(record))
                ]
            arrived = any(number == intent.id and name == new_hash for number, name, _, _ in places.get(to, []))
            if arrived:
                for directory, number, name in ((to, replaced, new_hash), (source, intent.id, old_hash)):
                    for found, named, g, bits in places.get(directory, []):
                        if found == number and named == name and number:
                            flip(s, g, np.uint64(bits), np.uint64(0), acc)
            flip(s, group, np.uint64(1 << intent.slot), np.uint64(0), acc)
            settled += 1
    return settled


def _bits(slot: int, extension: int) -> int:
    return 1 << slot | (1 << (extension - 1) if extension else 0)
