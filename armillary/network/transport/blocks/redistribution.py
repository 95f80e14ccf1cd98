"""Who needs which part of whose block: all intersections of subscribers' blocks with publishers' blocks.

Publishers are sorted along the dimension in which the fewest pairs can overlap; each subscriber then looks only at the publishers whose
interval there can meet its own, and tests those in all dimensions. This costs the candidates, not publishers times subscribers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop

from .decomposition import Ints, checked_shape

#: Pairs that are tested at most, and that are kept at most.
MOST_CANDIDATES = 4_000_000_000
MOST_PAIRS = 50_000_000


@dataclass(frozen=True)
class Redistribution:
    """One row per overlapping pair, sorted by subscriber and then by publisher: where the part starts, and how large it is."""

    subscriber: Ints
    publisher: Ints
    start: Ints
    count: Ints

    @property
    def elements(self) -> Ints:
        """Elements of each part."""
        return self.count.prod(axis=1)

    def __len__(self) -> int:
        return len(self.subscriber)

    def table(self) -> list[dict[str, object]]:
        """The rows as dictionaries."""
        names = ("subscriber", "publisher", "start", "count")
        columns = (self.subscriber.tolist(), self.publisher.tolist(), self.start.tolist(), self.count.tolist())
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def redistribution(
    shape: Sequence[int],
    publishers: tuple[npt.ArrayLike, npt.ArrayLike],
    subscribers: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    where: str = "redistribution",
) -> Redistribution:
    """The parts that move when `publishers` hold (start, count) blocks of an array of `shape` and `subscribers` want theirs.

    Blocks are arrays of one row per rank and one column per dimension. Publishers' blocks may not overlap.
    """
    shape = checked_shape(shape, where)
    ours = checked_blocks(shape, *publishers, f"{where}, publishers")
    theirs = checked_blocks(shape, *subscribers, f"{where}, subscribers")
    check_disjoint(ours, where)
    return intersections(ours, theirs)


def checked_blocks(shape: Sequence[int], start: npt.ArrayLike, count: npt.ArrayLike, where: str) -> tuple[Ints, Ints]:
    """(start, count) as arrays, inside the shape."""
    try:
        found = [np.asarray(x) for x in (start, count)]
    except ValueError:
        raise InputError("found rows of unlike length; expected one number per dimension", where=where) from None
    for name, x in zip(("start", "count"), found, strict=True):
        if x.dtype.kind not in "iu" or x.ndim != 2 or x.shape[1] != len(shape):
            raise InputError(f"{name}: found {x.dtype} of shape {x.shape}; expected whole numbers, {len(shape)} per rank", where=where)
    first, size = (np.ascontiguousarray(x, np.int64) for x in found)
    if first.shape != size.shape:
        raise InputError(f"found {len(first)} starts and {len(size)} counts; expected as many", where=where)
    room = np.asarray(shape, np.int64)
    wrong = np.flatnonzero(((first < 0) | (size < 0) | (first > room) | (size > room - np.clip(first, 0, room))).any(axis=1))
    if len(wrong):
        r = int(wrong[0])
        end = (first[r] + size[r]).tolist()
        raise InputError(f"rank {r}: found a block from {first[r].tolist()} to {end}; expected it inside {list(shape)}", where=where)
    return first, size


def check_disjoint(blocks: tuple[Ints, Ints], where: str) -> None:
    """Refuses blocks that overlap, naming the first two."""
    volume = blocks[1].prod(axis=1)
    found = intersections(blocks, blocks)
    if len(found) > int((volume > 0).sum()):
        twice = np.flatnonzero(found.subscriber != found.publisher)[0]
        a, b = int(found.subscriber[twice]), int(found.publisher[twice])
        at = found.start[twice].tolist()
        raise InputError(f"found blocks of publishers {a} and {b} that overlap at {at}; expected each element once", where=where)


def intersections(publishers: tuple[Ints, Ints], subscribers: tuple[Ints, Ints]) -> Redistribution:
    """The same for blocks that have been checked."""
    (start, count), (first, size) = publishers, subscribers
    end, last = start + count, first + size
    dims = start.shape[1]
    best: tuple[int, int, Ints, Ints, Ints] | None = None
    for d in range(dims):
        order = np.argsort(start[:, d], kind="stable")
        # The largest end so far never falls, so that the first publisher that may reach a subscriber is found by bisection.
        reach = np.maximum.accumulate(end[order, d]) if len(order) else end[:0, d]
        low = np.searchsorted(reach, first[:, d], "right")
        high = np.maximum(np.searchsorted(start[order, d], last[:, d], "left"), low)
        total = int((high - low).sum())
        if best is None or total < best[0]:
            best = (total, d, order, low, high)
    assert best is not None
    total, _, order, low, high = best
    if total > MOST_CANDIDATES:
        raise InputError(f"found {total:,} pairs of blocks that may overlap; expected at most {MOST_CANDIDATES:,}")
    many = _count(start, end, first, last, order, low, high)
    pairs = int(many.sum())
    if pairs > MOST_PAIRS:
        raise InputError(f"found {pairs:,} pairs of blocks that overlap; expected at most {MOST_PAIRS:,}")
    at = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
    s, p = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    _fill(start, end, first, last, order, low, high, at, s, p)
    part = np.maximum(start[p], first[s])
    return Redistribution(s, p, part, np.minimum(end[p], last[s]) - part)


@loop
def _meets(start, end, first, last, p, s):  # type: ignore[no-untyped-def]
    meets = True
    for d in range(start.shape[1]):
        meets = meets and max(start[p, d], first[s, d]) < min(end[p, d], last[s, d])
    return meets


@loop
def _count(start, end, first, last, order, low, high):  # type: ignore[no-untyped-def]
    many = np.zeros(len(first), np.int64)
    for s in range(len(first)):
        for i in range(low[s], high[s]):
            many[s] += _meets(start, end, first, last, order[i], s)
    return many


@loop
def _fill(start, end, first, last, order, low, high, at, subscriber, publisher):  # type: ignore[no-untyped-def]
    for s in range(len(first)):
        k = at[s]
        for i in range(low[s], high[s]):
            if _meets(start, end, first, last, order[i], s):
                subscriber[k] = s
                publisher[k] = order[i]
                k += 1
        publisher[at[s] : k].sort()
