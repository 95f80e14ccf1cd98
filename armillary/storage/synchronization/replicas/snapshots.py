"""Content-addressed snapshots of a tree, and how two of them are merged.

A snapshot names its parents and its tree; the tree is cut into buckets by a hash of the path, so that a commit copies one bucket and
two trees are compared where their buckets differ. Merge bases are found by walking both histories from the newest generation down until
all that is left is common. Where histories crossed and there are several bases, they are merged with each other first, and the result,
conflicts and all, is the base (git's recursive strategy).

A path holds one version, or several after a conflict, in which both sides are kept.
"""

from __future__ import annotations

import hashlib
import heapq
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..world.protocol import Content
from .merge3 import merge_sequences

BUCKETS = 64
#: Lines in common, as a share of the longer file, from which a deleted and a created file are one that was renamed (git's default).
SIMILAR = 0.5


class Kept(NamedTuple):
    """One version of a file; `ops` is the simulator's stamp."""

    content: Content
    ops: tuple[int, ...]


Entry = tuple[Kept, ...]
Changes = Mapping[str, Entry | None]


class Tree:
    """A tree that never changes; `with_changes` gives another that shares all but the buckets it touches."""

    __slots__ = ("buckets", "names")

    def __init__(self, buckets: tuple[dict[str, Entry], ...] = ({},) * BUCKETS, names: tuple[str, ...] = ("",) * BUCKETS) -> None:
        self.buckets, self.names = buckets, names

    def get(self, path: str) -> Entry | None:
        """Returns what is at `path`."""
        return self.buckets[_bucket(path)].get(path)

    def with_changes(self, changes: Changes) -> Tree:
        """Returns the tree after these changes, of which None deletes."""
        buckets, names = list(self.buckets), list(self.names)
        touched: dict[int, dict[str, Entry]] = {}
        for path, entry in changes.items():
            i = _bucket(path)
            bucket = touched.setdefault(i, dict(self.buckets[i]) if i not in touched else touched[i])
            if entry is None:
                bucket.pop(path, None)
            else:
                bucket[path] = entry
        for i, bucket in touched.items():
            buckets[i] = bucket
            names[i] = _name(sorted((path, [(k.content.lines, k.content.size) for k in entry]) for path, entry in bucket.items()))
        return Tree(tuple(buckets), tuple(names))

    @property
    def name(self) -> str:
        """The digest of all that is in it."""
        return _name(self.names)

    def items(self) -> Iterator[tuple[str, Entry]]:
        """Yields all paths."""
        for bucket in self.buckets:
            yield from bucket.items()

    def differing(self, other: Tree) -> set[str]:
        """Returns the paths at which two trees differ."""
        found: set[str] = set()
        for mine, theirs, a, b in zip(self.buckets, other.buckets, self.names, other.names, strict=True):
            if a != b:
                found.update(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
        return found


def _bucket(path: str) -> int:
    return zlib.crc32(path.encode("utf-8", "surrogatepass")) % BUCKETS


def _name(what: object) -> str:
    return hashlib.blake2b(repr(what).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


EMPTY_TREE = Tree()


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """A snapshot that never changes. `id` is BLAKE2b over parents, tree and the author's mark. `generation` is one above its parents'.

    `bytes` is what it costs on the wire, its record and the contents that no parent has; `changed` are the paths of those.
    """

    id: str
    parents: tuple[str, ...]
    tree: Tree
    generation: int
    bytes: int
    changed: frozenset[str] = frozenset()


def commit(parents: Iterable[Commit], tree: Tree, size: int, changed: frozenset[str] = frozenset(), mark: str = "") -> Commit:
    """Makes a commit with its id. A merge carries no mark, so that whoever merges the same two makes the same commit."""
    above = sorted(parents, key=lambda c: c.id)
    ids = tuple(c.id for c in above)
    return Commit(_name((ids, tree.name, mark)), ids, tree, 1 + max((c.generation for c in above), default=0), size, changed)


def merge_bases(history: Mapping[str, Commit], a: Commit, b: Commit) -> list[Commit]:
    """Returns the best common ancestors, none of which is an ancestor of another, in the order of ids."""
    from_a, from_b, stale = 1, 2, 4
    flags = {a.id: from_a}
    flags[b.id] = flags.get(b.id, 0) | from_b
    queue = [(-c.generation, c.id) for c in {a.id: a, b.id: b}.values()]
    heapq.heapify(queue)
    found: list[Commit] = []
    while any(not flags[name] & stale for _, name in queue):
        _, name = heapq.heappop(queue)
        flag, one = flags[name], history[name]
        if flag & 7 == from_a | from_b:
            found.append(one)
            flag |= stale
        for parent in one.parents:
            before = flags.get(parent)
            if before is None:
                heapq.heappush(queue, (-history[parent].generation, parent))
            flags[parent] = (before or 0) | flag
    return sorted((c for c in found if not flags[c.id] & stale), key=lambda c: c.id)


def base_tree(history: Mapping[str, Commit], a: Commit, b: Commit) -> Tree:
    """Returns the tree to merge against: the base's or, where histories crossed, that of the bases merged one after the other."""
    bases = merge_bases(history, a, b)
    if not bases:
        return EMPTY_TREE
    made: dict[str, Commit] = {}
    both = _Joined(made, history)
    virtual = bases[0]
    for other in bases[1:]:
        tree = merge_trees(base_tree(both, virtual, other), virtual.tree, other.tree).tree
        virtual = commit((virtual, other), tree, 0)
        made[virtual.id] = virtual
    return virtual.tree


class _Joined(Mapping[str, Commit]):
    """Virtual commits on top of a history, without copying it."""

    def __init__(self, made: Mapping[str, Commit], history: Mapping[str, Commit]) -> None:
        self.made, self.history = made, history

    def __getitem__(self, name: str) -> Commit:
        return self.made[name] if name in self.made else self.history[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.made
        yield from self.history

    def __len__(self) -> int:
        return len(self.made) + len(self.history)


@dataclass(frozen=True)
class MergedTree:
    """A merge: the tree, and the pairs of versions that stand beside each other for the first time."""

    tree: Tree
    conflicts: tuple[tuple[Kept, Kept], ...]


def merge_trees(base: Tree, ours: Tree, theirs: Tree) -> MergedTree:
    """Merges three ways, path by path, after renames on one side were followed on the other; both orders of the sides give the same."""
    left, right = base.differing(ours), base.differing(theirs)
    moved = {**_renames(base, ours, left), **_renames(base, theirs, right)}
    at = {path: (base.get(path), ours.get(path), theirs.get(path)) for path in left | right}
    for old, new in sorted(moved.items()):
        _follow(old, new, at)
    changes: dict[str, Entry | None] = {}
    conflicts: list[tuple[Kept, Kept]] = []
    for path, (b, o, t) in at.items():
        entry, beside = merge_entry(b, o, t)
        conflicts += beside
        if entry != ours.get(path):
            changes[path] = entry
    return MergedTree(ours.with_changes(changes) if changes else ours, tuple(conflicts))


Three = tuple[Entry | None, Entry | None, Entry | None]


def _follow(old: str, new: str, at: dict[str, Three]) -> None:
    """Makes the other side's edit of `old`, which one side moved to `new`, an edit of `new`. If both moved it, both names stay."""
    b, o, t = at[old]
    nb, no, nt = at.get(new, (None, None, None))
    if nb is not None or b is None:
        return
    if o is None and t is not None and no is not None and nt is None:
        at[new], at[old] = (b, no, t), (None, None, None)
    elif t is None and o is not None and nt is not None and no is None:
        at[new], at[old] = (b, o, nt), (None, None, None)


def _renames(base: Tree, side: Tree, changed: set[str]) -> dict[str, str]:
    """Finds which deleted path became which created one: the most similar, with at least half the lines equal."""
    gone = sorted(path for path in changed if base.get(path) is not None and side.get(path) is None)
    if not gone:
        return {}
    new = {path: _lines(side.get(path)) for path in sorted(changed) if base.get(path) is None and side.get(path) is not None}
    found: dict[str, str] = {}
    for path in gone:
        lines = _lines(base.get(path))
        best = max(((_similarity(lines, other), name) for name, other in new.items()), default=(0.0, ""))
        if best[0] >= SIMILAR:
            found[path] = best[1]
            del new[best[1]]
    return found


def _lines(entry: Entry | None) -> frozenset[int]:
    return frozenset(line for kept in entry or () for line in kept.content.lines)


def _similarity(a: frozenset[int], b: frozenset[int]) -> float:
    return len(a & b) / max(len(a), len(b), 1)


def merge_entry(base: Entry | None, ours: Entry | None, theirs: Entry | None) -> tuple[Entry | None, list[tuple[Kept, Kept]]]:
    """Merges one path. A side that alone changed it wins; of two, lines are merged if that is clean, or all new versions are kept."""
    if _same(ours, theirs) or _same(theirs, base):
        return ours, []
    if _same(ours, base):
        return theirs, []
    if base and ours and theirs and len(base) == len(ours) == len(theirs) == 1:
        b, o, t = base[0], ours[0], theirs[0]
        lines = merge_sequences(b.content.lines, o.content.lines, t.content.lines).lines
        if lines is not None:
            size = max(0, o.content.size + t.content.size - b.content.size)
            return (Kept(Content(lines, size), tuple(sorted({*o.ops, *t.ops}))),), []
    known = {kept.content for kept in base or ()}
    here, there = {k.content: k for k in ours or ()}, {k.content: k for k in theirs or ()}
    kept = [k for c, k in here.items() if c in there or c not in known]
    kept += [k for c, k in there.items() if c not in here and c not in known]
    fresh_here = [k for c, k in here.items() if c not in there and c not in known]
    fresh_there = [k for c, k in there.items() if c not in here and c not in known]
    entry = tuple(sorted(kept, key=lambda k: k.content.lines))
    return entry or None, [(o, t) for o in fresh_here for t in fresh_there]


def _same(a: Entry | None, b: Entry | None) -> bool:
    return [k.content for k in a or ()] == [k.content for k in b or ()]
