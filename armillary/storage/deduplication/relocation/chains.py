"""The order in which unique chunks should lie: chains of chunks that the same files use, packed into containers.

`adjacency` extends a chain from its last chunk to the unplaced successor of greatest cosine. At a dead end it extends the other end by
predecessors, and then opens a new chain at the first unplaced chunk of the file with the fewest placed ones. `cosine` considers every
unplaced chunk instead of neighbours only; it takes O(U²) steps and is the reference.

Revisiting Fragmentation for Deduplication in Clustered Primary Storage Systems (ReoDedup), IEEE CLUSTER 2025. Predecessors, the starts
of chains and the packing of containers are our design.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.kernels import kernel, part

from .similarity import Rows, as_rows, neighbours, users

MODES = ("adjacency", "cosine")
MOST_FOR_COSINE = 20_000
#: Containers that are kept open while chains are packed, so that a short chain finds a gap.
OPEN_CONTAINERS = 16


@dataclass(frozen=True)
class Chains:
    """Chunks in the order in which they should lie. Chain i is order[starts[i] : starts[i + 1]], and every chunk is in one chain."""

    order: np.ndarray
    starts: np.ndarray

    def units(self, room: int) -> Chains:
        """The same chains cut into pieces of at most `room` chunks, which fit a container and are moved at once."""
        lengths = np.diff(self.starts)
        pieces = -(-lengths // room)
        first = np.repeat(self.starts[:-1], pieces)
        number = np.arange(len(first)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        return Chains(self.order, np.append(first + number * room, len(self.order)).astype(np.int64))


def relocation_plan(
    files: Any, *, chunks: int | None = None, mode: str = "adjacency", slots: int | None = None, slack: float = 0.05
) -> np.ndarray:
    """int64[U]: the new position of each chunk, with chunks of the same files side by side.

    `files` holds one array of chunk numbers per file, in the order of its bytes. Chunks are numbered 0 to U-1, where U is `chunks` or one
    more than the greatest number. Without `slots` the positions are a permutation; with it, position p is slot p % slots of container
    p // slots, and a share `slack` of each container stays free for updates. "adjacency" takes O(R log R) steps for R references, and
    "cosine" takes at most 20,000 chunks.
    """
    rows = as_rows(files)
    least = int(rows.values.max()) + 1 if len(rows.values) else 0
    if chunks is not None and chunks < least:
        raise InputError(f"found chunk {least - 1}; expected numbers below chunks = {chunks}", where="files")
    found = chains(rows, least if chunks is None else chunks, mode)
    if slots is None:
        positions = np.empty(len(found.order), np.int64)
        positions[found.order] = np.arange(len(found.order))
        return positions
    positions = np.full(len(found.order), -1, np.int64)
    units = found.units(room_of(slots, slack))
    place_units(units, np.arange(len(units.starts) - 1), positions, slots, slack, 0)
    return positions


def chains(files: Rows, chunks: int, mode: str = "adjacency") -> Chains:
    """All chunks 0 to `chunks`-1 as chains; those that no file uses come last, one chain in order of their numbers."""
    if mode not in MODES:
        raise unknown("mode", str(mode), MODES)
    if mode == "cosine" and chunks > MOST_FOR_COSINE:
        raise InputError(f'found {chunks} chunks; expected at most {MOST_FOR_COSINE} for mode "cosine"')
    used = users(files, chunks)
    follow, precede = neighbours(files, used)
    order, starts = np.empty(chunks, np.int32), np.empty(chunks + 1, np.int64)
    placed = np.zeros(chunks, np.bool_)
    if mode == "cosine":
        shared = np.zeros(chunks, np.int32)
        sums = (order, starts, placed, shared)
        n, count = _cosine_chains(files.starts, files.values, used.starts, used.values, follow.starts, follow.chunk, follow.count, *sums)
    else:
        distinct = np.bincount(used.values, minlength=len(files)).astype(np.int32)
        buckets = _Buckets(distinct)
        n, count = _adjacency_chains(
            files.values, used.starts, used.values,
            follow.starts, follow.chunk, follow.count, follow.cosine,
            precede.starts, precede.chunk, precede.count, precede.cosine,
            order, starts, placed, distinct, *buckets.arrays, np.empty(chunks, np.int32), files.starts[:-1].copy(),
        )  # fmt: skip
    rest = np.flatnonzero(~placed)
    if len(rest):
        starts[count] = n
        order[n:] = rest
        count += 1
    starts[count] = chunks
    return Chains(order, starts[: count + 1].copy())


def room_of(slots: int, slack: float) -> int:
    """Slots of a container that chains may fill; the rest is kept for updates."""
    if isinstance(slots, bool) or not hasattr(slots, "__index__") or not 1 <= slots <= 1 << 24:
        raise InputError(f"slots: found {slots!r}; expected a whole number from 1 to 16777216")
    if not 0 <= slack < 1:
        raise InputError(f"slack: found {slack!r}; expected a share below 1")
    return max(1, slots - math.ceil(slack * slots))


def place_units(units: Chains, which: np.ndarray, positions: np.ndarray, slots: int, slack: float, first: int) -> int:
    """Writes the positions of the chunks of units `which`, into containers from number `first` on; returns the next free number.

    A unit goes as a whole into the first open container that has room for it, or else into a new one, so it never crosses the end of a
    container.
    """
    opened = np.full(OPEN_CONTAINERS, -1, np.int64)
    filled = np.zeros(OPEN_CONTAINERS, np.int64)
    return int(
        _pack(units.order, units.starts, np.asarray(which, np.int64), positions, slots, room_of(slots, slack), first, opened, filled)
    )


class _Buckets:
    """Files by the number of their chunks that are placed, as intrusive lists; only the lowest list that is not empty is used."""

    def __init__(self, distinct: np.ndarray) -> None:
        most = int(distinct.max()) if len(distinct) else 0
        self.head, self.tail = np.full(most + 1, -1, np.int32), np.full(most + 1, -1, np.int32)
        files = np.flatnonzero(distinct).astype(np.int32)
        self.before, self.after = np.full(len(distinct), -1, np.int32), np.full(len(distinct), -1, np.int32)
        if len(files):
            self.head[0], self.tail[0] = files[0], files[-1]
            self.before[files[1:]], self.after[files[:-1]] = files[:-1], files[1:]
        self.count = np.zeros(len(distinct), np.int32)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays in the order in which the kernel takes them."""
        return self.head, self.tail, self.before, self.after, self.count


@part
def _leave(head, tail, before, after, bucket, f):
    left, right = before[f], after[f]
    if left < 0:
        head[bucket] = right
    else:
        after[left] = right
    if right < 0:
        tail[bucket] = left
    else:
        before[right] = left


@part
def _place(c, placed, used_starts, used, distinct, head, tail, before, after, count):
    """Marks chunk c as placed. Each of its files moves up by one bucket, or leaves when all its chunks are placed."""
    placed[c] = True
    for at in range(used_starts[c], used_starts[c + 1]):
        f = used[at]
        k = count[f]
        _leave(head, tail, before, after, k, f)
        count[f] = k + 1
        if k + 1 < distinct[f]:
            last = tail[k + 1]
            before[f] = last
            after[f] = -1
            tail[k + 1] = f
            if last < 0:
                head[k + 1] = f
            else:
                after[last] = f


@part
def _best(c, starts, chunk, counts, cosines, placed):
    """The unplaced neighbour of greatest cosine, then of greatest count, then of smallest number; -1 if there is none."""
    best, best_cosine, best_count = -1, np.float32(-1.0), 0
    for at in range(starts[c], starts[c + 1]):
        d = chunk[at]
        if placed[d]:
            continue
        if cosines[at] > best_cosine or (cosines[at] == best_cosine and counts[at] > best_count):
            best, best_cosine, best_count = d, cosines[at], counts[at]
    return best


@kernel
def _adjacency_chains(
    refs, used_starts, used, next_starts, next_chunk, next_count, next_cosine,
    last_starts, last_chunk, last_count, last_cosine, order, starts, placed, distinct, head, tail, before, after, count, backwards, cursor,
):  # fmt: skip
    n, chain_count, low = 0, 0, 0
    while True:
        while low < len(head) and head[low] < 0:
            low += 1
        if low >= len(head):
            return n, chain_count
        f = head[low]
        while placed[refs[cursor[f]]]:
            cursor[f] += 1
        c = refs[cursor[f]]
        starts[chain_count] = n
        chain_count += 1
        first = c
        begin = n
        while c >= 0:
            _place(c, placed, used_starts, used, distinct, head, tail, before, after, count)
            order[n] = c
            n += 1
            c = _best(c, next_starts, next_chunk, next_count, next_cosine, placed)
        found = 0
        c = _best(first, last_starts, last_chunk, last_count, last_cosine, placed)
        while c >= 0:
            _place(c, placed, used_starts, used, distinct, head, tail, before, after, count)
            backwards[found] = c
            found += 1
            c = _best(c, last_starts, last_chunk, last_count, last_cosine, placed)
        if found > 0:
            for i in range(n - 1, begin - 1, -1):
                order[i + found] = order[i]
            for i in range(found):
                order[begin + i] = backwards[found - 1 - i]
            n += found


@kernel
def _cosine_chains(file_starts, refs, used_starts, used, next_starts, next_chunk, next_count, order, starts, placed, shared):
    chunks = len(placed)
    n, chain_count, c = 0, 0, -1
    while True:
        if c < 0:
            most = 0
            for d in range(chunks):
                if not placed[d] and used_starts[d + 1] - used_starts[d] > most:
                    most, c = used_starts[d + 1] - used_starts[d], d
            if c < 0:
                return n, chain_count
            starts[chain_count] = n
            chain_count += 1
        placed[c] = True
        order[n] = c
        n += 1
        for at in range(used_starts[c], used_starts[c + 1]):
            f = used[at]
            for r in range(file_starts[f], file_starts[f + 1]):
                d = refs[r]
                # A negative entry was counted for this file already: a file counts once however often it refers to d.
                if shared[d] >= 0:
                    shared[d] = -2 - shared[d]
            for r in range(file_starts[f], file_starts[f + 1]):
                d = refs[r]
                if shared[d] < 0:
                    shared[d] = -1 - shared[d]
        best, best_cosine, best_count = -1, 0.0, 0
        size = np.float64(used_starts[c + 1] - used_starts[c])
        for d in range(chunks):
            if shared[d] == 0:
                continue
            alike = shared[d] / np.sqrt(size * np.float64(used_starts[d + 1] - used_starts[d]))
            shared[d] = 0
            if placed[d] or alike < best_cosine:
                continue
            follows = 0
            for at in range(next_starts[c], next_starts[c + 1]):
                if next_chunk[at] == d:
                    follows = next_count[at]
            if alike > best_cosine or follows > best_count:
                best, best_cosine, best_count = d, alike, follows
        c = best


@kernel
def _pack(order, starts, which, positions, slots, room, first, opened, filled):
    number = first
    for i in range(len(which)):
        unit = which[i]
        size = starts[unit + 1] - starts[unit]
        into = -1
        for k in range(len(opened)):
            if opened[k] >= 0 and filled[k] + size <= room:
                into = k
                break
        if into < 0:
            # The fullest of the open containers makes way.
            into = 0
            for k in range(len(opened)):
                if opened[k] < 0:
                    into = k
                    break
                if filled[k] > filled[into]:
                    into = k
            opened[into] = number
            filled[into] = 0
            number += 1
        base = opened[into] * slots + filled[into]
        for j in range(size):
            positions[order[starts[unit] + j]] = base + j
        filled[into] += size
    return number
