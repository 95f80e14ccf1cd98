"""A mesh is a list of leaf blocks in Z-order and the messages between blocks that share a face.

A block is (level, i, j, k): the place is counted in blocks of its own level. Level 0 is the grid of root blocks, and a refined block is
replaced by the 2 (per dimension) smaller ones at twice its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Blocks of a mesh and messages of a step.
MOST_BLOCKS = 1 << 24
MOST_MESSAGES = 1 << 26
#: Places stay below this, so that (level, i, j, k) fits one 64-bit key.
MOST_PLACE = 1 << 19


@dataclass(frozen=True, eq=False)
class Graph:
    """Directed messages of one step, grouped by sending block: block b sends `size[m]` bytes to `target[m]`, first[b] ≤ m < first[b+1]."""

    first: Ints
    target: Ints
    #: Bytes.
    size: Floats

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.first) - 1

    @property
    def source(self) -> Ints:
        """The sending block of each message."""
        return np.repeat(np.arange(self.blocks), np.diff(self.first))

    @classmethod
    def of(cls, source: npt.ArrayLike, target: npt.ArrayLike, size: npt.ArrayLike, blocks: int) -> Graph:
        """The graph of these messages, in any order; messages of a block keep the order of their targets."""
        source, target = np.asarray(source, np.int64), np.asarray(target, np.int64)
        for name, ends in (("sending", source), ("receiving", target)):
            wrong = np.flatnonzero((ends < 0) | (ends >= blocks))
            if len(wrong):
                raise InputError(f"message {wrong[0]}: found the {name} block {ends[wrong[0]]}; expected 0 to {blocks - 1}")
        sizes = np.broadcast_to(np.asarray(size, np.float64), source.shape)
        if not np.all(np.isfinite(sizes) & (sizes >= 0)):
            raise InputError("found a message of negative or infinite size; expected bytes from 0 on")
        order = np.lexsort((target, source))
        first = np.zeros(blocks + 1, np.int64)
        np.cumsum(np.bincount(source, minlength=blocks), out=first[1:])
        return cls(first, target[order], np.ascontiguousarray(sizes[order]))

    @classmethod
    def empty(cls, blocks: int) -> Graph:
        """A graph without messages."""
        return cls(np.zeros(blocks + 1, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, eq=False)
class Blocks:
    """Leaf blocks in the order of the space-filling curve."""

    #: n.
    level: Ints
    #: n × 3; the third is 0 in a plane.
    place: Ints
    dimensions: int = 3

    def __len__(self) -> int:
        return len(self.level)

    @classmethod
    def of(cls, level: npt.ArrayLike, place: npt.ArrayLike, dimensions: int = 3) -> Blocks:
        """These blocks in Z-order."""
        level, place = np.asarray(level, np.int64), np.asarray(place, np.int64).reshape(-1, 3)
        order = np.argsort(z_order(level, place), kind="stable")
        return cls(level[order], place[order], dimensions)

    @property
    def keys(self) -> Ints:
        """One number per block that no other (level, i, j, k) has."""
        return keys(self.level, self.place)


def keys(level: Ints, place: Ints) -> Ints:
    """(level, i, j, k) as one number."""
    found: Ints = (level << 57) | (place[:, 0] << 38) | (place[:, 1] << 19) | place[:, 2]
    return found


def z_order(level: Ints, place: Ints) -> npt.NDArray[np.uint64]:
    """The position of each block's first corner on the Z-order curve of the finest level."""
    finest = int(level.max()) if len(level) else 0
    corner = place << (finest - level)[:, None]
    if len(corner) and int(corner.max()) >= 1 << 21:
        raise InputError("found blocks that lie more than 2²¹ finest blocks from the origin; expected a smaller mesh")
    bits = [_spread(corner[:, axis].astype(np.uint64)) << np.uint64(axis) for axis in range(3)]
    found: npt.NDArray[np.uint64] = bits[0] | bits[1] | bits[2]
    return found


def _spread(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The lowest 21 bits with two zeros between each."""
    for shift, mask in (
        (32, 0x1F00000000FFFF), (16, 0x1F0000FF0000FF), (8, 0x100F00F00F00F00F), (4, 0x10C30C30C30C30C3), (2, 0x1249249249249249),
    ):  # fmt: skip
        x = (x | (x << np.uint64(shift))) & np.uint64(mask)
    return x


class Finder:
    """Finds blocks by level and place."""

    def __init__(self, blocks: Blocks) -> None:
        known = blocks.keys
        self._order = np.argsort(known, kind="stable")
        self._keys = known[self._order]

    def __call__(self, level: Ints, place: Ints) -> Ints:
        """The number of each block, or −1 where there is none."""
        if not len(self._keys):
            return np.full(len(level), -1)
        inside = (place >= 0).all(1) & (place < MOST_PLACE).all(1) & (level >= 0)
        wanted = np.where(inside, keys(np.where(inside, level, 0), np.where(inside[:, None], place, 0)), -1)
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[at] == wanted, self._order[at], -1)


def face_messages(blocks: Blocks, face_bytes: float, roots: tuple[int, int, int] | None = None) -> Graph:
    """One message per direction between blocks that share a face.

    Across a jump by one level the shared face is a half (plane) or a quarter (space) of the coarser one, and so are the bytes. `roots` is
    the size of the root grid where the domain is periodic.
    """
    find = Finder(blocks)
    here = np.arange(len(blocks))
    sources: list[Ints] = []
    targets: list[Ints] = []
    sizes: list[Floats] = []
    for axis in range(blocks.dimensions):
        for side in (-1, 1):
            level, place = blocks.level.copy(), blocks.place.copy()
            place[:, axis] += side
            if roots is not None:
                place[:, axis] %= np.int64(roots[axis]) << level
            share, waiting = 1.0, np.ones(len(blocks), bool)
            while waiting.any() and int(level.max()) >= 0:
                other = np.where(waiting, find(level, place), -1)
                there = np.flatnonzero((other >= 0) & (other != here))
                # The coarser block does not find its finer neighbours by itself.
                sources += [there] if share == 1.0 else [there, other[there]]
                targets += [other[there]] if share == 1.0 else [other[there], there]
                sizes += [np.full(len(there), share * face_bytes)] * (1 if share == 1.0 else 2)
                waiting &= other < 0
                level -= 1
                place >>= 1
                share /= 2 ** (blocks.dimensions - 1)
    return Graph.of(np.concatenate(sources), np.concatenate(targets), np.concatenate(sizes), len(blocks))


def overlapping(blocks: Blocks) -> int | None:
    """The number of a block that occurs twice or lies inside another one, or None."""
    known = blocks.keys
    order = np.argsort(known, kind="stable")
    twice = np.flatnonzero(known[order][1:] == known[order][:-1])
    if len(twice):
        return int(order[twice[0] + 1])
    find = Finder(blocks)
    level, place = blocks.level - 1, blocks.place >> 1
    while len(level) and int(level.max()) >= 0:
        inside = np.flatnonzero(find(level, place) >= 0)
        if len(inside):
            return int(inside[0])
        level, place = level - 1, place >> 1
    return None
