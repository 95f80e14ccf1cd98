"""A store of immutable versions: what each was made from, which are heads, and what another store lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TypeVar

from ..world.protocol import RECORD_BYTES, Content
from .merge3 import merge_sequences

T = TypeVar("T")
#: The place of a version in its author's work: (author, number from 1).
Dot = tuple[str, int]
ID_BYTES = 16


@dataclass(frozen=True)
class Version:
    """A state of a file that never changes. `id` is BLAKE2b over parents, file, path, content and group; `content` is None if deleted.

    `ops` is the simulator's stamp and no part of the id.
    """

    id: str
    file: str
    parents: tuple[str, ...]
    path: str
    content: Content | None
    group: str
    ops: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size on the wire."""
        return RECORD_BYTES + ID_BYTES * len(self.parents) + len(self.path) + (self.content.size if self.content else 0)


Item = tuple[Dot, Version]


def version(
    parents: Iterable[str], file: str, path: str, content: Content | None, group: str, ops: tuple[int, ...], salt: str = ""
) -> Version:
    """Makes a version with its id; `salt` tells apart files created alike, and an empty `file` makes it the first of its own."""
    above = tuple(sorted(parents))
    name = hashlib.blake2b(repr((above, file, path, content, group, salt)).encode(), digest_size=ID_BYTES).hexdigest()
    return Version(name, file or name, above, path, content, group, ops)


def digest(*sets: Iterable[Item]) -> str:
    """Names a proposal by the ids of both directions."""
    return hashlib.blake2b(repr([[v.id for _, v in items] for items in sets]).encode(), digest_size=ID_BYTES).hexdigest()


class VersionStore:
    """The versions that one replica has, closed under parents; every author's are there from its first without a gap."""

    def __init__(self, me: str) -> None:
        self.me = me
        self.versions: dict[str, Version] = {}
        #: Every dot in the order of arrival, so that parents come before children.
        self.log: list[Item] = []
        #: The places in the log of each author's versions, first to last, and the longest way from a version back to its file's first.
        self.places: dict[str, list[int]] = {}
        self.depth: dict[str, int] = {}
        #: The first dot under which each version came.
        self.dots: dict[str, Dot] = {}
        self.counts: dict[str, int] = {}
        self.heads: dict[str, set[str]] = {}
        self.at_path: dict[str, set[str]] = {}
        self._children: set[str] = set()
        #: Paths where other heads are than when somebody last emptied this.
        self.changed: set[str] = set()
        #: Own versions beyond this number belong to a group that is still open, and do not travel.
        self.limit: int | None = None
        #: The last summary, and the length of the log and the limit for which it was made.
        self._summary: Mapping[str, int] = {}
        self._summed: tuple[int, int | None] = (0, None)

    def create(self, made: Version) -> None:
        """Adds a version of our own."""
        self.insert([((self.me, self.counts.get(self.me, 0) + 1), made)])

    def insert(self, items: Iterable[Item]) -> list[Version]:
        """Adds versions that are closed under parents; those that were not there are returned. A repeat changes nothing."""
        new = []
        for dot, one in items:
            author, number = dot
            if number != self.counts.get(author, 0) + 1:
                continue
            self.counts[author] = number
            self.places.setdefault(author, []).append(len(self.log))
            self.log.append((dot, one))
            if one.id not in self.versions:
                self.versions[one.id] = one
                self.dots[one.id] = dot
                self._raise(one)
                new.append(one)
        return new

    def _raise(self, one: Version) -> None:
        self._children.update(one.parents)
        self.depth[one.id] = 1 + max((self.depth[p] for p in one.parents), default=0)
        for parent in one.parents:
            self._lower(self.versions[parent])
        if one.id not in self._children:
            self.heads.setdefault(one.file, set()).add(one.id)
            self.at_path.setdefault(one.path, set()).add(one.id)
            self.changed.add(one.path)

    def _lower(self, one: Version) -> None:
        self.changed.add(one.path)
        for index, key in ((self.heads, one.file), (self.at_path, one.path)):
            here = index.get(key)
            if here is not None:
                here.discard(one.id)
                if not here:
                    del index[key]

    def forget(self, one: Version) -> None:
        """Takes a delete out of the heads; the version itself stays."""
        self._lower(one)

    def summary(self) -> Mapping[str, int]:
        """Returns how many versions of each author are here and may travel, in the same mapping until that changes."""
        now = (len(self.log), self.limit)
        if self._summed != now:
            out = dict(self.counts)
            if self.limit is not None:
                out[self.me] = min(out.get(self.me, 0), self.limit)
            self._summary = {author: count for author, count in out.items() if count}
            self._summed = now
        return self._summary

    def beyond(self, theirs: Mapping[str, int]) -> tuple[Item, ...]:
        """Returns what a store with that summary lacks of what may travel, parents first."""
        if theirs == self.counts:
            return ()
        places: list[int] = []
        for author, count in self.counts.items():
            known = theirs.get(author, 0)
            if known < count:
                last = count if self.limit is None or author != self.me else min(count, self.limit)
                places += self.places[author][known:last]
        if len(places) > 1:
            places.sort()
        return tuple([self.log[place] for place in places])

    def is_closed(self, items: Iterable[Item]) -> bool:
        """Returns whether these can be inserted: no parent and no earlier version of an author is missing, and every id is right."""
        here: set[str] = set()
        counts = dict(self.counts)
        for (author, number), one in items:
            if number > counts.get(author, 0) + 1 or not all(p in self.versions or p in here for p in one.parents):
                return False
            counts[author] = max(number, counts.get(author, 0))
            here.add(one.id)
        return True

    def shown(self, path: str) -> list[Version]:
        """Returns the heads that a user of `path` sees in the order of ids: those there, and the other heads of the same files."""
        files = {self.versions[i].file for i in self.at_path.get(path, ()) if self.versions[i].content is not None}
        ids = set(self.at_path.get(path, ())).union(*(self.heads[file] for file in files))
        return [self.versions[i] for i in sorted(ids)]

    def base(self, a: Version, b: Version) -> Version | None:
        """Returns what two heads are compared with, which is their latest common ancestor.

        Where there are several, as after two replicas merged the same changes crosswise, it is the clean merge of them; None where
        that fails or nothing is common.
        """
        return self._base((a.id,), (b.id,))

    def _base(self, left: tuple[str, ...], right: tuple[str, ...]) -> Version | None:
        first, *others = sorted(self._tips(left, right)) or [""]
        found = self.versions.get(first)
        for i, tip in enumerate(others):
            found = found and self._merged(found, self.versions[tip], self._base((first, *others[:i]), (tip,)))
        return found

    def _tips(self, left: Iterable[str], right: Iterable[str]) -> list[str]:
        """Returns the latest versions that lie at or below one of the left and one of the right."""
        seen = dict.fromkeys(left, 1)
        for i in right:
            seen[i] = seen.get(i, 0) | 2
        queue = [(-self.depth[i], i) for i in seen]
        heapify(queue)
        tips: list[str] = []
        # The search goes from the newest down; what lies below a tip (4) is no tip, and when only that is left, all tips are found.
        while any(not seen[i] & 4 for _, i in queue):
            _, i = heappop(queue)
            if seen[i] == 3:
                tips.append(i)
            flag = 7 if seen[i] == 3 else seen[i]
            for parent in self.versions[i].parents:
                if parent not in seen:
                    heappush(queue, (-self.depth[parent], parent))
                seen[parent] = seen.get(parent, 0) | flag
        return tips

    def merged(self, a: Version, b: Version) -> Version | None:
        """Merges two heads of a file three ways, name and lines each; returns None where they clash or one is a delete."""
        return self._merged(a, b, self.base(a, b))

    def _merged(self, a: Version, b: Version, base: Version | None) -> Version | None:
        if a.content is None or b.content is None or base is None or base.content is None:
            return None
        path = _one_changed(base.path, a.path, b.path)
        content = _one_changed(base.content, a.content, b.content)
        if content is None:
            lines = merge_lines(base.content.lines, a.content.lines, b.content.lines)
            content = None if lines is None else Content(lines, a.content.size + b.content.size - base.content.size)
        if path is None or content is None:
            return None
        ops = tuple(sorted({*a.ops, *b.ops}))
        return version((a.id, b.id), a.file, path, content, "", ops)


def _one_changed(base: T, a: T, b: T) -> T | None:
    if a in (base, b):
        return b
    return a if b == base else None


def merge_lines(base: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Applies both sides' changes to `base`; returns None where two changes touch."""
    return merge_sequences(base, a, b).lines
