"""Queues of object numbers over int32 arrays: first in, first out, and anything may leave from the middle.

A queue is a ring of cells. Young objects are written at one end and old ones read from the other; an object that leaves from the
middle leaves a hole (-1) behind, and a ring without a free cell is rewritten without its holes. A ring has at least twice as many
cells as objects, so a rewrite of n cells follows at least n/2 writes: every operation is O(1) amortised. To make an object the
youngest, as LRU does, is to leave and to join: two writes, where a linked list has six, and old objects are read in the order of
memory.

All queues of one cache share `cells` (int32); `queues` (int64, one row a queue) says which cells are whose; `slot[o]` is the cell
of object o. Several queues may share one `slot` table if no object is in two of them. Sizes are bytes, or all one: then `sizes`
and `held` are None, for which Numba compiles a second kernel without them.

The lists below (`append`, `unlink`) are intrusive and doubly linked, for what has no bounded number of queues: one for every
frequency in LFU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from armillary.kernels import kernel as kernel
from armillary.kernels import part as part

#: Columns of `queues`: first cell, cells less one (a power of two less one), the old end and the young end (counters that only grow:
#: the cell is `FIRST + (counter & MASK)`), and the sizes of all objects inside.
FIRST, MASK, OLD, YOUNG, SIZE = 0, 1, 2, 3, 4
HOLE = -1
#: Requests ahead of the present one whose entries are fetched; far enough to hide a trip to memory.
AHEAD = 24


def ring_cells(objects: int) -> int:
    """Cells of a ring for at most `objects` objects: a power of two, at least twice as many."""
    return max(8, 1 << (2 * objects - 1).bit_length())


def empty_queues(most: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(cells, queues) for queues of at most `most[q]` objects each."""
    lengths = [ring_cells(objects) for objects in most]
    queues = np.zeros((len(most), 5), np.int64)
    queues[:, FIRST] = np.cumsum([0, *lengths[:-1]])
    queues[:, MASK] = np.array(lengths) - 1
    return np.full(sum(lengths), HOLE, np.int32), queues


def grown_queues(cells: np.ndarray, queues: np.ndarray, slots: list[np.ndarray], most: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The same queues with room for `most[q]` objects; `slots[q]` is the table that queue q writes, and is brought up to date."""
    new_cells, new_queues = empty_queues(most)
    new_queues[:, OLD:] = queues[:, OLD:]
    for q, slot in enumerate(slots):
        counters = np.arange(queues[q, OLD], queues[q, YOUNG])
        objects = cells[queues[q, FIRST] + (counters & queues[q, MASK])]
        at = new_queues[q, FIRST] + (counters & new_queues[q, MASK])
        new_cells[at] = objects
        slot[objects[objects >= 0]] = at[objects >= 0]
    return new_cells, new_queues


def members(cells: np.ndarray, queues: np.ndarray, q: int) -> np.ndarray:
    """The objects of queue q, young to old: for tests and printouts."""
    counters = np.arange(queues[q, YOUNG] - 1, queues[q, OLD] - 1, -1)
    objects = cells[queues[q, FIRST] + (counters & queues[q, MASK])]
    return objects[objects >= 0]


@part
def push(cells, queues, q, slot, o, size):
    """Object o joins queue q as its youngest."""
    if queues[q, YOUNG] - queues[q, OLD] > queues[q, MASK]:
        close_holes(cells, queues, q, slot, 0)
    young = queues[q, YOUNG]
    cell = queues[q, FIRST] + (young & queues[q, MASK])
    cells[cell] = o
    slot[o] = cell
    queues[q, YOUNG] = young + 1
    queues[q, SIZE] += size


@part
def oldest(cells, queues, q):
    """The oldest object of queue q, which must not be empty; it stays."""
    old, first, mask = queues[q, OLD], queues[q, FIRST], queues[q, MASK]
    o = cells[first + (old & mask)]
    while o < 0:
        old += 1
        o = cells[first + (old & mask)]
    queues[q, OLD] = old
    return o


@part
def pop(cells, queues, q, held):
    """The oldest object of queue q, which must not be empty; it leaves."""
    o = oldest(cells, queues, q)
    queues[q, OLD] += 1
    queues[q, SIZE] -= size_of(held, o)
    return o


@part
def leave(cells, queues, q, slot, o, held):
    """Object o leaves queue q from wherever it is."""
    cells[slot[o]] = HOLE
    queues[q, SIZE] -= size_of(held, o)


@kernel
def close_holes(cells, queues, q, slot, mark):
    """Rewrites queue q without its holes; returns where the counter `mark` has gone (to the first object at or after it)."""
    first, mask = queues[q, FIRST], queues[q, MASK]
    to = queues[q, OLD]
    moved = mark
    for counter in range(queues[q, OLD], queues[q, YOUNG]):
        if counter == mark:
            moved = to
        o = cells[first + (counter & mask)]
        if o >= 0:
            cell = first + (to & mask)
            cells[cell] = o
            slot[o] = cell
            to += 1
    queues[q, YOUNG] = to
    return moved


@part
def append(first, last, before, after, b, o):
    """Object o becomes the last of list b; `first[b]`, `last[b]`, `before[o]` and `after[o]` are -1 where there is nobody."""
    tail = last[b]
    before[o] = tail
    after[o] = -1
    last[b] = o
    if tail < 0:
        first[b] = o
    else:
        after[tail] = o


@part
def unlink(first, last, before, after, b, o):
    """Object o leaves list b."""
    left, right = before[o], after[o]
    if left < 0:
        first[b] = right
    else:
        after[left] = right
    if right < 0:
        last[b] = left
    else:
        before[right] = left


@part
def size_of(held, o):
    """The size with which object o was taken in."""
    if held is None:
        return 1
    return held[o]


@part
def size_at(sizes, i):
    """The size that request i names."""
    if sizes is None:
        return 1
    return sizes[i]


@part
def hold(held, o, size):
    """Remembers the size with which object o is taken in."""
    if held is not None:
        held[o] = size


@intrinsic
def _fetch(typing_context: Any, table: Any, index: Any) -> Any:
    """Asks the processor for `table[index]`; nothing waits for it."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir  # type: ignore[import-untyped]

        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte_pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        signature_ir = ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32])
        prefetch_ir = builder.module.declare_intrinsic("llvm.prefetch", [byte_pointer], signature_ir)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte_pointer)
        builder.call(prefetch_ir, [address, int32(1), int32(3), int32(1)])
        return context.get_dummy_value()

    return types.void(table, types.intp), build


@part
def fetch_ahead(table, objects, i):
    """Starts the fetch of the entry that the request `AHEAD` places on will need."""
    if i + AHEAD < len(objects):
        _fetch(table, objects[i + AHEAD])
