"""What becomes of blocks when a mesh changes: a block stays, it is one of the children of an old one, or old ones merge into it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .mesh import Blocks, Finder, Floats, Ints


@dataclass(frozen=True, eq=False)
class Change:
    """The old blocks from which each new one came: source[first[b]] to source[first[b + 1] − 1]."""

    first: Ints
    source: Ints
    #: Per new block, whether it is an old one.
    same: np.ndarray

    @property
    def target(self) -> Ints:
        """The new block of each pair (old, new)."""
        return np.repeat(np.arange(len(self.same)), np.diff(self.first))

    def mapped(self, values: Floats) -> Floats:
        """The old blocks' values for the new ones: a child inherits its parent's, a merged block takes the mean of what it replaces.

        A block that came from nowhere takes the mean of all.
        """
        counts = np.diff(self.first)
        sums = np.bincount(self.target, values[self.source], minlength=len(counts))
        return np.where(counts > 0, sums / np.maximum(counts, 1), values.mean() if len(values) else 0.0)


def change(old: Blocks, new: Blocks) -> Change:
    """The change from one mesh to the next, by levels and places; blocks may be refined or merged by several levels at once."""
    in_old, in_new = Finder(old), Finder(new)
    target, source = [], []
    came = _ancestor(in_old, new.level, new.place)
    there = np.flatnonzero(came >= 0)
    target.append(there)
    source.append(came[there])
    went = _ancestor(in_new, old.level - 1, old.place >> 1)
    there = np.flatnonzero(went >= 0)
    target.append(went[there])
    source.append(there)
    same = np.zeros(len(new), bool)
    same[:] = in_old(new.level, new.place) >= 0
    return _grouped(np.concatenate(target), np.concatenate(source), same)


def by_position(old: int, new: int) -> Change:
    """The change between meshes of which only the numbers of blocks are known, which are matched by their position on the curve."""
    at = np.arange(new)
    return _grouped(at, at * old // max(new, 1), np.full(new, old == new))


def _ancestor(find: Finder, level: Ints, place: Ints) -> Ints:
    """The block itself or the nearest block above it that exists, or −1."""
    found = np.full(len(level), -1)
    level, place = level.copy(), place.copy()
    while len(level) and int(level.max()) >= 0:
        found = np.where(found < 0, find(level, place), found)
        level -= 1
        place >>= 1
    return found


def _grouped(target: Ints, source: Ints, same: np.ndarray) -> Change:
    order = np.lexsort((source, target))
    first = np.zeros(len(same) + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=len(same)), out=first[1:])
    return Change(first, source[order], same)
