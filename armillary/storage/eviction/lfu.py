"""LFU: the object that was used least since it came leaves, and among equals the one that has had its count longest.

Counting finds popular objects and ignores scans, but an object that was popular long ago stays. The count starts anew each time an object
comes in. Objects of equal count form a list, and the lists are linked in the order of their counts, so every step is O(1): a use moves an
object to the next list.

K. Shah, A. Mitra, D. Matani: An O(1) algorithm for implementing the LFU cache eviction scheme, 2010.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..queue import append, fetch_ahead, hold, kernel, part, size_at, size_of, unlink
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class Lfu(Policy):
    """Least frequently used since insertion."""

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        return State(
            _run, capacity, sized=sized,
            tables={"slot": Table(np.int32, -1), "before": Table(np.int32), "after": Table(np.int32)},
            pools={"count": Table(np.int64), "first": Table(np.int32, -1), "last": Table(np.int32, -1), "lower": Table(np.int32),
                   "higher": Table(np.int32)},
            numbers=[0, NONE, NONE, 0],
        )  # fmt: skip


#: What the cache holds, the list of the lowest count, the first free list and the number of lists ever used.
USED, LOWEST, FREE, EVER = OWN, OWN + 1, OWN + 2, OWN + 3
NONE = -1


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, slot, before, after, count, first, last, lower, higher):
    # slot: the list of an object, -1 if it is not cached. Invariant: no list is empty, and counts rise from LOWEST along `higher`.
    capacity = numbers[CAPACITY]
    for i in range(len(objects)):
        fetch_ahead(slot, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if slot[o] >= 0:
            if is_use(operation, sizes, held, i, o):
                _use(numbers, slot, before, after, count, first, last, lower, higher, o)
                hits[i] = operation == LOOKUP
                continue
            _remove(numbers, held, slot, before, after, first, last, lower, higher, o)
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        while numbers[USED] + size > capacity:
            v = first[numbers[LOWEST]]
            _remove(numbers, held, slot, before, after, first, last, lower, higher, v)
            record(log, numbers, i, v, 0)
        b = numbers[LOWEST]
        if b == NONE or count[b] != 1:
            b = _new_list(numbers, count, first, last, lower, higher, NONE, 1)
        slot[o] = b
        append(first, last, before, after, b, o)
        numbers[USED] += size
        hold(held, o, size)
        numbers[MOVES] += 1


@part
def _use(numbers, slot, before, after, count, first, last, lower, higher, o):
    """Counts a use: o moves to the list of the next count, or takes its list along if it is alone in it."""
    b = slot[o]
    up = higher[b]
    fits = up != NONE and count[up] == count[b] + 1
    if first[b] == last[b] and not fits:
        count[b] += 1
        return
    if not fits:
        up = _new_list(numbers, count, first, last, lower, higher, b, count[b] + 1)
    unlink(first, last, before, after, b, o)
    append(first, last, before, after, up, o)
    slot[o] = up
    numbers[MOVES] += 1
    if first[b] < 0:
        _free_list(numbers, lower, higher, b)


@part
def _remove(numbers, held, slot, before, after, first, last, lower, higher, o):
    b = slot[o]
    unlink(first, last, before, after, b, o)
    if first[b] < 0:
        _free_list(numbers, lower, higher, b)
    slot[o] = -1
    numbers[USED] -= size_of(held, o)


@part
def _new_list(numbers, count, first, last, lower, higher, below, times):
    """A list for count `times` right above list `below`, or at the bottom for NONE."""
    b = numbers[FREE]
    if b == NONE:
        b = numbers[EVER]
        numbers[EVER] += 1
    else:
        numbers[FREE] = higher[b]
    above = numbers[LOWEST] if below == NONE else higher[below]
    lower[b], higher[b] = below, above
    if below == NONE:
        numbers[LOWEST] = b
    else:
        higher[below] = b
    if above != NONE:
        lower[above] = b
    count[b] = times
    first[b] = -1
    last[b] = -1
    return b


@part
def _free_list(numbers, lower, higher, b):
    if lower[b] == NONE:
        numbers[LOWEST] = higher[b]
    else:
        higher[lower[b]] = higher[b]
    if higher[b] != NONE:
        lower[higher[b]] = lower[b]
    higher[b] = numbers[FREE]
    numbers[FREE] = b
