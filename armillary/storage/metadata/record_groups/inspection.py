"""What a space holds, read from its bytes alone: a walk from the root, and a check of everything that is reachable.

Everything reachable has right checksums, because nothing becomes reachable before it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from armillary.errors import InputError

from .groups import HIGH, WORDS
from .records import (
    DIRECTORY,
    EXTENSION,
    FILE,
    INLINE_NAME,
    LONGEST_NAME,
    NAME_AT,
    OWN,
    ROOT,
    SHARED,
    SYMLINK,
    TINY,
    header_ok,
    name_hash,
    record_ok,
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One record of the space, and its `group` and `slot`."""

    id: int
    parent: int
    name: bytes
    kind: int
    mode: int
    uid: int
    gid: int
    size: int
    times: tuple[int, int, int]
    nlink: int
    flags: int
    pointer: int
    group: int
    slot: int
    extension: int


@dataclass(frozen=True)
class Set:
    """One directory's groups: (group, depth, prefix, first of its bucket)."""

    directory: int
    tiny: bool
    groups: tuple[tuple[int, int, int, bool], ...]


class Reader:
    """Reads groups and records of a space, and checks every checksum."""

    def __init__(self, space: np.ndarray, group_bytes: int, groups: int, key: tuple[int, int] = (0, 0)) -> None:
        #: The key under which names are hashed.
        self.key = key
        self.b, self.w, self.h = space, space.view(np.uint64), space.view(np.uint32)
        self.words, self.groups = group_bytes // 8, groups
        self.slots = group_bytes // 256 - 1

    def header(self, g: int) -> tuple[int, int, int, int, int, int, int]:
        """Returns (owner, bitmap, next, next bucket, prefix, depth, kind)."""
        if not 0 < g < self.groups:
            raise InputError(f"group {g}; expected 1 to {self.groups - 1}")
        at = g * self.words
        if not header_ok(self.w, self.h, at):
            raise InputError(f"group {g}: wrong checksum of its header")
        owner, bitmap, after, bucket = (int(x) for x in self.w[at : at + 4])
        return owner, bitmap, after, bucket, int(self.h[2 * at + 9]), int(self.b[8 * at + 44]), int(self.b[8 * at + 45])

    def records(self, g: int, bitmap: int, directory: int | None = None) -> list[Record]:
        """Returns the valid records of a group, of one directory if it is given."""
        found, rest = [], {}
        for slot in range(self.slots):
            if not bitmap >> slot & 1:
                continue
            r = g * self.words + 32 * (slot + 1)
            if directory is not None and int(self.w[r + 1]) != directory:
                continue
            if not record_ok(self.w, self.h, r):
                raise InputError(f"group {g}, slot {slot}: wrong checksum of a record")
            length, kind = int(self.h[2 * r + 18]) & 0xFFFF, int(self.b[8 * r + 74])
            if kind == EXTENSION:
                rest[int(self.w[r + 10])] = (slot, self.b[8 * r + NAME_AT : 8 * r + NAME_AT + length].tobytes())
                continue
            size, *times = (int(x) for x in self.w[r + 2 : r + 6].view(np.int64))
            mode, uid, gid = (int(x) for x in self.h[2 * r + 12 : 2 * r + 15])
            name = self.b[8 * r + NAME_AT : 8 * r + NAME_AT + min(length, INLINE_NAME)].tobytes()
            found.append(Record(int(self.w[r]), int(self.w[r + 1]), name, kind, mode, uid, gid, size, (times[0], times[1], times[2]),
                                int(self.h[2 * r + 16]), int(self.h[2 * r + 17]), int(self.w[r + 10].view(np.int64)), g, slot,
                                int(self.b[8 * r + 75])))  # fmt: skip
        whole = []
        for record in found:
            if not record.extension:
                whole.append(record)
                continue
            if record.slot not in rest:
                raise InputError(f"group {g}, slot {record.slot}: the rest of its name is missing")
            slot, more = rest[record.slot]
            whole.append(Record(**{**record.__dict__, "name": record.name + more, "extension": slot + 1}))
        return whole

    def set_of(self, directory: Record) -> Set:
        """Returns the groups of a directory, in the order of its chain."""
        if directory.pointer == 0:
            return Set(directory.id, False, ())
        if directory.flags & TINY:
            return Set(directory.id, True, ((directory.pointer, 0, 0, True),))
        found: list[tuple[int, int, int, bool]] = []
        seen: set[int] = set()
        bucket = directory.pointer
        while bucket:
            g, first, following = bucket, True, 0
            while g:
                if g in seen:
                    raise InputError(f"group {g} is linked twice")
                seen.add(g)
                _, _, after, next_bucket, prefix, depth, _ = self.header(g)
                if first:
                    following, shape = next_bucket, (depth, prefix)
                found.append((g, *shape, first))
                g, first = after, False
            bucket = following
        return Set(directory.id, False, tuple(found))

    def root(self, handlers: int) -> Record:
        """Returns the root's record."""
        home = handlers + 1
        records = self.records(home, self.header(home)[1])
        root = records[0] if len(records) == 1 else None
        if root is None or root.id != ROOT or root.kind != DIRECTORY or root.parent or root.flags or root.name:
            raise InputError("no record of the root directory")
        return root

    def children(self, directory: Record, groups: Set) -> list[Record]:
        """Returns the records of a directory's children."""
        found = []
        for g, *_ in groups.groups:
            found += self.records(g, self.header(g)[1], directory.id)
        return found


def walk(space: np.ndarray, m: np.ndarray, handlers: int) -> Iterator[Record]:
    """Yields every record but the root's, directory by directory."""
    reader = Reader(space, 8 * int(m[WORDS]), int(m[HIGH]))
    for _, _, records in directories(reader, handlers):
        yield from records


def directories(reader: Reader, handlers: int) -> Iterator[tuple[Record, Set, list[Record]]]:
    """Yields (directory, its groups, its children) from the root down."""
    todo = [reader.root(handlers)]
    seen = {ROOT}
    while todo:
        directory = todo.pop()
        groups = reader.set_of(directory)
        records = reader.children(directory, groups)
        yield directory, groups, records
        for record in records:
            if record.kind == DIRECTORY:
                if record.id in seen:
                    raise InputError(f"directory {record.id} is in two places")
                seen.add(record.id)
                todo.append(record)


def check(space: np.ndarray, group_bytes: int, groups: int, handlers: int, key: tuple[int, int] = (0, 0)) -> list[str]:
    """Returns the faults of a space, one sentence each; the list is empty for a sound space, which recovery always leaves."""
    reader = Reader(space, group_bytes, groups, key)
    faults: list[str] = []
    ids: dict[int, tuple[int, bytes]] = {ROOT: (0, b"")}
    owners: dict[int, int] = {}
    shared: dict[int, set[int]] = {}
    shape: dict[int, tuple[int, int]] = {}
    try:
        faults += [f"handler {h} has an open intent" for h in range(handlers) if reader.header(1 + h)[1]]
        for directory, groups_of, records in directories(reader, handlers):
            names = set()
            covered = sum(Fraction(1, 1 << depth) for _, depth, _, first in groups_of.groups if first)
            if groups_of.groups and covered != 1:
                faults.append(f"the buckets of directory {directory.id} hold {covered} of the hashes")
            for g, depth, prefix, _ in groups_of.groups:
                owner, *_, kind = reader.header(g)
                if not groups_of.tiny and owner != directory.id:
                    faults.append(f"group {g} of directory {directory.id} names {owner} as its owner")
                if kind != (SHARED if groups_of.tiny else OWN):
                    faults.append(f"group {g}: kind {kind} in directory {directory.id}")
                if groups_of.tiny:
                    shared.setdefault(g, set()).add(directory.id)
                elif owners.setdefault(g, directory.id) != directory.id:
                    faults.append(f"group {g} belongs to two directories")
                shape[g] = depth, prefix
            for record in records:
                if record.parent != directory.id:
                    faults.append(f"id {record.id} lies in directory {directory.id} but names {record.parent}")
                if record.kind not in (FILE, DIRECTORY, SYMLINK) or not 1 <= len(record.name) <= LONGEST_NAME:
                    faults.append(f"id {record.id}: kind {record.kind} with a name of {len(record.name)} bytes")
                if record.id in ids:
                    faults.append(f"id {record.id} is in two places")
                if record.name in names:
                    faults.append(f"directory {directory.id} has a name twice")
                names.add(record.name)
                ids[record.id] = directory.id, record.name
                if not groups_of.tiny:
                    depth, prefix = shape[record.group]
                    if hash_of(record.name, key) >> 8 & ((1 << depth) - 1) != prefix:
                        faults.append(f"id {record.id} is in the wrong bucket")
        for g, owners_of in shared.items():
            if g in owners:
                faults.append(f"group {g} is shared and owned")
            strangers = [r for r in reader.records(g, reader.header(g)[1]) if r.parent not in owners_of]
            faults += [f"id {r.id} is stale in shared group {g}" for r in strangers]
    except InputError as error:
        faults.append(str(error))
    return faults


def hash_of(name: bytes, key: tuple[int, int]) -> int:
    """Returns the 64-bit hash of a name under a key."""
    return int(name_hash(np.frombuffer(bytearray(name or b"\0"), np.uint8), 0, len(name), *key))
