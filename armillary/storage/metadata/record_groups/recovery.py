"""Recovery after a start: the indexes in host memory are rebuilt from the space, and whatever a crash interrupted is repaired.

The file may come from a stranger, and the other kernels check no bounds. Therefore the walk proves everything that they rely on before it
enters a record into an index: every link leads to a group that nobody else uses, every group belongs to the directory that links it, the
buckets of a directory share the hashes out without overlap, every record lies in its bucket under its directory, the rest of a long name
is there, and no id occurs twice. So the directories form a tree.

Every intent whose new record is complete is finished, and the others are forgotten. Stale records are taken out of shared groups. Numba
walks over the space, and Python decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel, part

from .groups import (
    CHILDREN,
    DEPTH,
    EXTENT,
    FREE_EXTENTS,
    HEAD,
    HIGH,
    IS_TINY,
    KEY0,
    KEY1,
    NEXT_ID,
    OWN_ID,
    ROWS,
    SHARED_LIST,
    SLOTS,
    TABLE,
    TABLE_USED,
    TAKEN,
    WORDS,
    add_directory,
    bit,
    extension_place,
    fingerprint_at,
    flip,
    hash_of_record,
    record_at,
    tag_of,
)  # fmt: skip
from .inspection import Reader, hash_of
from .records import (
    DEEPEST,
    DIRECTORY,
    EXTENSION,
    FILE,
    INLINE_NAME,
    INTENT,
    INTENTS,
    LONGEST_NAME,
    NAME_AT,
    OWN,
    ROOT,
    SHARED,
    SYMLINK,
    TINY,
    extensions_of,
    header_ok,
    kind_of,
    name_length,
    record_ok,
    seal_header,
)  # fmt: skip

if TYPE_CHECKING:
    from .groups import Layout

FINE, BAD_HEADER, BAD_RECORD, BAD_LINK, BAD_ID, MORE_ROWS = range(6)
WRONG_HEADER, WRONG_RECORD, WRONG_BUCKETS, WRONG_PLACE, SEEN_TWICE, BAD_ROOT = range(6, 12)
WORDS_FOR = {
    BAD_HEADER: "wrong checksum of a header", BAD_RECORD: "wrong checksum of a record", BAD_LINK: "a link that leads nowhere",
    BAD_ID: "an id that is too large", WRONG_HEADER: "a header that does not belong there", WRONG_RECORD: "a record that cannot be",
    WRONG_BUCKETS: "buckets that do not share out the hashes", WRONG_PLACE: "a record in the wrong bucket",
    SEEN_TWICE: "an id that is in two places", BAD_ROOT: "no record of the root directory",
}  # fmt: skip


def recover(s: Layout, handlers: int, acc: np.ndarray, where: str) -> int:
    """Rebuilds the indexes and returns the number of intents that were finished or undone; damaged bytes raise InputError."""
    try:
        open_intents = _intended(s, handlers)
        scan(s, handlers, where, np.array(sorted(open_intents), np.int64))
        if open_intents:
            _settle_intents(s, handlers, acc)
            scan(s, handlers, where)
    except InputError as error:
        raise error if error.where else InputError(str(error), where=where) from None
    return len(open_intents)


def scan(s: Layout, handlers: int, where: str, moving: np.ndarray | None = None) -> None:
    """Walks from the root and fills the indexes; stale records of shared groups are cleared on the way.

    Only ids in `moving`, for which an intent is open, may be in two places.
    """
    used = np.zeros(len(s.link), np.uint8)
    s.place[:], s.row[:], s.link[:] = -1, -1, 0
    s.m[ROWS], s.m[TABLE_USED], s.m[FREE_EXTENTS] = 0, 0, 0
    result = np.zeros(2, np.int64)
    _scan(s, handlers, np.zeros(0, np.int64) if moving is None else moving, used, result)
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
def largest_id(w, groups, words, slots):
    """Returns the largest id that any taken slot of the space names, reachable or not."""
    most = np.int64(0)
    for g in range(1, groups):
        taken = w[g * words + 1]
        if taken != np.uint64(0):
            for slot in range(slots):
                if taken & bit(slot):
                    most = max(most, np.int64(w[g * words + 32 * (slot + 1)]))
    return most


@part
def _header_fault(s, g, owner, kind):
    """Returns what is wrong with a group's header, or FINE; the owner of a shared group may be gone."""
    at = g * s.m[WORDS]
    if not header_ok(s.w, s.h, at):
        return BAD_HEADER
    if np.int64(s.b[8 * at + 45]) != kind or (kind == OWN and np.int64(s.w[at]) != owner):
        return WRONG_HEADER
    if s.w[at + 1] >> np.uint64(s.m[SLOTS]) != np.uint64(0):
        return WRONG_HEADER
    return FINE


@kernel
def _name_fault(s, r, more, length):
    """Returns whether a name has a byte that no name may have; `more` is the word of its extension's record."""
    for i in range(length):
        at = 8 * r + NAME_AT + i if i < INLINE_NAME else 8 * more + NAME_AT + i - INLINE_NAME
        if s.b[at] == 0 or s.b[at] == 47:
            return True
    return False


@kernel
def _record_fault(s, place, directory, groups):
    """Returns what is wrong with a record of a directory, or FINE."""
    r = record_at(s, place)
    if not record_ok(s.w, s.h, r):
        return BAD_RECORD
    if np.int64(s.w[r + 1]) != directory:
        return WRONG_RECORD
    kind, length = kind_of(s.b, r), name_length(s.h, r)
    pointer = s.w[r + 10]
    if kind == EXTENSION:
        if pointer >= np.uint64(s.m[SLOTS]):
            return WRONG_RECORD
        of = (place >> 6 << 6) + np.int64(pointer)
        taken = s.w[(place >> 6) * s.m[WORDS] + 1] & bit(of & 63)
        if taken == np.uint64(0) or kind_of(s.b, record_at(s, of)) == EXTENSION or extension_place(s, of) != place:
            return WRONG_RECORD
        return FINE
    if kind != FILE and kind != DIRECTORY and kind != SYMLINK:
        return WRONG_RECORD
    if length < 1 or length > LONGEST_NAME or extensions_of(s.b, r) != (1 if length > INLINE_NAME else 0):
        return WRONG_RECORD
    more = np.int64(0)
    if length > INLINE_NAME:
        place_of_more = extension_place(s, place)
        if place_of_more < 0:
            return WRONG_RECORD
        more = record_at(s, place_of_more)
        if name_length(s.h, more) != length - INLINE_NAME:
            return WRONG_RECORD
    if _name_fault(s, r, more, length):
        return WRONG_RECORD
    flags = s.h[2 * r + 17]
    if kind == DIRECTORY:
        if pointer >= np.uint64(groups) or flags > np.uint32(TINY) or (flags and pointer == np.uint64(0)):
            return WRONG_RECORD
    elif pointer != np.uint64(0) or flags != np.uint32(0):
        return WRONG_RECORD
    return FINE


@kernel
def _enter_buckets(s, d, directory, home, groups, result):
    """Enters the buckets of a directory into its table; they must share all hashes out without overlap."""
    words = s.m[WORDS]
    bucket, count, cover, deepest = s.dirs[d, HEAD], 0, np.int64(0), np.int64(0)
    while bucket != 0:
        count += 1
        if bucket <= home or bucket >= groups or count > groups:
            result[0], result[1] = BAD_LINK, bucket
            return
        fault = _header_fault(s, bucket, directory, OWN)
        depth = np.int64(s.b[8 * bucket * words + 44])
        if fault == FINE and (depth > DEEPEST or np.int64(s.h[2 * bucket * words + 9]) >> depth != 0):
            fault = WRONG_BUCKETS
        if fault != FINE:
            result[0], result[1] = fault, bucket
            return
        cover += np.int64(1) << (DEEPEST - depth)
        deepest = max(deepest, depth)
        bucket = np.int64(s.w[bucket * words + 3])
    size = np.int64(1) << deepest
    if cover != np.int64(1) << DEEPEST or s.m[TABLE_USED] + size > len(s.table):
        result[0], result[1] = WRONG_BUCKETS, s.dirs[d, HEAD]
        return
    if deepest == 0:
        return
    start = s.m[TABLE_USED]
    s.m[TABLE_USED] += size
    s.table[start : start + size] = 0
    s.dirs[d, TABLE], s.dirs[d, DEPTH] = start, deepest
    bucket = s.dirs[d, HEAD]
    while bucket != 0:
        depth, prefix = np.int64(s.b[8 * bucket * words + 44]), np.int64(s.h[2 * bucket * words + 9])
        for i in range(prefix, size, 1 << depth):
            if s.table[start + i] != 0:
                result[0], result[1] = WRONG_BUCKETS, bucket
                return
            s.table[start + i] = bucket
        bucket = np.int64(s.w[bucket * words + 3])


@kernel
def _enter_group(s, d, g, directory, depth, prefix, moving, groups, result):
    """Enters the directory's records of one group into the indexes."""
    slots = s.m[SLOTS]
    taken = s.w[g * s.m[WORDS] + 1]
    for slot in range(slots):
        place = 64 * g + slot
        r = record_at(s, place)
        if not taken & bit(slot) or (s.dirs[d, IS_TINY] and np.int64(s.w[r + 1]) != directory):
            continue
        fault = _record_fault(s, place, directory, groups)
        number, name = np.int64(s.w[r]), np.uint64(0)
        if fault == FINE and kind_of(s.b, r) == EXTENSION:
            continue
        if fault == FINE and (number <= ROOT or number >= len(s.place)):
            fault = BAD_ID
        if fault == FINE:
            name = hash_of_record(s, place)
            s.tags[g * slots + slot] = tag_of(name)
            if np.int64((name >> np.uint64(8)) & np.uint64((1 << depth) - 1)) != prefix:
                fault = WRONG_PLACE
            elif slots <= 15 and s.b[fingerprint_at(s, g, slot)] != np.uint8(name & np.uint64(255)):
                fault = WRONG_HEADER
            elif s.place[number] >= 0:
                fault = SEEN_TWICE
                for one in moving:
                    if one == number:
                        fault = FINE
        if fault != FINE:
            result[0], result[1] = fault, g
            return
        # Beyond 15 records the fingerprints lie outside the header's checksum, so they are written anew.
        s.b[fingerprint_at(s, g, slot)] = np.uint8(name & np.uint64(255))
        s.place[number] = place
        s.dirs[d, CHILDREN] += 1
        s.m[NEXT_ID] = max(s.m[NEXT_ID], number + 1)
        if kind_of(s.b, r) == DIRECTORY and s.row[number] < 0:
            if s.m[ROWS] + 1 >= len(s.dirs):
                result[0] = MORE_ROWS
                return
            add_directory(s, number)


@kernel
def _scan(s, handlers, moving, used, result):
    words = s.m[WORDS]
    groups = len(s.w) // words
    home = handlers + 1
    for g in range(home + 1):
        used[g] = 1
        fault = _header_fault(s, g, 0, OWN if g == home else INTENTS) if g > 0 else FINE
        if fault != FINE:
            result[0], result[1] = fault, g
            return
    r = record_at(s, 64 * home)
    # The root has no name, no parent and groups of its own.
    if (
        not record_ok(s.w, s.h, r)
        or s.w[home * words + 1] != np.uint64(1)
        or s.w[r] != np.uint64(ROOT)
        or s.w[r + 1] != np.uint64(0)
        or s.h[2 * r + 17] != np.uint32(0)
        or s.h[2 * r + 18] != np.uint32(DIRECTORY << 16)
        or s.w[r + 10] >= np.uint64(groups)
    ):
        result[0], result[1] = BAD_ROOT, home
        return
    s.place[ROOT] = 64 * home
    add_directory(s, ROOT)
    d = 0
    while d < s.m[ROWS]:
        directory = s.dirs[d, OWN_ID]
        r = record_at(s, s.place[directory])
        head = np.int64(s.w[r + 10])
        tiny = s.h[2 * r + 17] & np.uint32(TINY) != 0
        s.dirs[d, HEAD], s.dirs[d, IS_TINY] = head, 1 if tiny else 0
        if head != 0 and not tiny:
            _enter_buckets(s, d, directory, home, groups, result)
            if result[0] != FINE:
                return
        bucket = head
        while bucket != 0:
            g = bucket
            depth = np.int64(0) if tiny else np.int64(s.b[8 * bucket * words + 44])
            prefix = np.int64(0) if tiny else np.int64(s.h[2 * bucket * words + 9])
            while g != 0:
                if g <= home or g >= groups or (used[g] and not (tiny and used[g] == 2)):
                    result[0], result[1] = BAD_LINK, g
                    return
                fault = _header_fault(s, g, directory, SHARED if tiny else OWN)
                if fault != FINE:
                    result[0], result[1] = fault, g
                    return
                used[g] = 2 if tiny else 1
                s.dirs[d, TAKEN] += 1
                _enter_group(s, d, g, directory, depth, prefix, moving, groups, result)
                if result[0] != FINE:
                    return
                g = np.int64(0) if tiny else np.int64(s.w[g * words + 2])
            bucket = np.int64(0) if tiny else np.int64(s.w[bucket * words + 3])
        d += 1
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


def _reader(s: Layout) -> Reader:
    size = 8 * int(s.m[WORDS])
    return Reader(s.b, size, len(s.b) // size, (int(s.m[KEY0]), int(s.m[KEY1])))


def _intended(s: Layout, handlers: int) -> list[int]:
    """Returns the ids of all open intents."""
    reader = _reader(s)
    found = []
    for group in range(1, handlers + 1):
        for intent in reader.records(group, reader.header(group)[1]):
            if intent.kind != INTENT:
                raise InputError(f"group {group}, slot {intent.slot}: a record that is no intent")
            found.append(intent.id)
    return found


def _settle_intents(s: Layout, handlers: int, acc: np.ndarray) -> None:
    reader = _reader(s)
    for group in range(1, handlers + 1):
        for intent in reader.records(group, reader.header(group)[1]):
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
                    (r.id, hash_of(r.name, reader.key), r.group, _bits(r.slot, r.extension))
                    for r in reader.children(record, reader.set_of(record))
                ]
            arrived = any(number == intent.id and name == new_hash for number, name, _, _ in places.get(to, []))
            if arrived:
                for directory, number, name in ((to, replaced, new_hash), (source, intent.id, old_hash)):
                    for found, named, g, bits in places.get(directory, []):
                        if found == number and named == name and number:
                            flip(s, g, np.uint64(bits), np.uint64(0), acc)
            flip(s, group, np.uint64(1 << intent.slot), np.uint64(0), acc)


def _bits(slot: int, extension: int) -> int:
    return 1 << slot | (1 << (extension - 1) if extension else 0)
