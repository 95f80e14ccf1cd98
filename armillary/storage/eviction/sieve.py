"""SIEVE: a hand sweeps the queue and evicts the first object that was not used, wherever it is.

A hit sets a bit. When room is needed, the hand walks from old to young, clears the bits that it meets and evicts the first object without
one; at the young end it starts again at the old end. Unlike in CLOCK, survivors keep their place. Newcomers therefore meet the hand early
and leave fast unless they are used, while proven objects stay behind it.

SIEVE is simpler than LRU: an efficient turn-key eviction algorithm for web caches. NSDI 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..queue import FIRST, HOLE, MASK, OLD, SIZE, YOUNG, close_holes, fetch_ahead, hold, kernel, leave, oldest, part, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, Ring, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class Sieve(Policy):
    """A first-in-first-out queue with a moving hand."""

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        tables = {"where": Table(np.uint8), "slot": Table(np.int32)}
        return State(_run, capacity, sized=sized, tables=tables, rings=[Ring(capacity)], numbers=[NOWHERE])


HAND = OWN
#: The hand after it passed the youngest object: it will start at the oldest.
NOWHERE = -1


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, cells, queues):
    # where: 0 not cached, 1 cached, 2 used since the hand came by. Invariant: the hand stands on a cached object, or nowhere.
    capacity = numbers[CAPACITY]
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if where[o]:
            if is_use(operation, sizes, held, i, o):
                if where[o] == 1:
                    where[o] = 2
                hits[i] = operation == LOOKUP
                continue
            where[o] = 0
            leave(cells, queues, 0, slot, o, held)
            hand = numbers[HAND]
            if hand != NOWHERE and slot[o] == queues[0, FIRST] + (hand & queues[0, MASK]):
                numbers[HAND] = _younger(cells, queues, hand)
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        while queues[0, SIZE] + size > capacity:
            _evict(log, numbers, i, held, where, cells, queues)
        if queues[0, YOUNG] - queues[0, OLD] > queues[0, MASK]:
            numbers[HAND] = close_holes(cells, queues, 0, slot, numbers[HAND])
        push(cells, queues, 0, slot, o, size)
        where[o] = 1
        hold(held, o, size)
        numbers[MOVES] += 1


@part
def _evict(log, numbers, i, held, where, cells, queues):
    first, mask, hand = queues[0, FIRST], queues[0, MASK], numbers[HAND]
    while True:
        if hand == NOWHERE:
            oldest(cells, queues, 0)
            hand = queues[0, OLD]
        v = cells[first + (hand & mask)]
        if where[v] == 1:
            break
        where[v] = 1
        hand = _younger(cells, queues, hand)
    where[v] = 0
    cells[first + (hand & mask)] = HOLE
    queues[0, SIZE] -= size_of(held, v)
    numbers[HAND] = _younger(cells, queues, hand)
    record(log, numbers, i, v, 0)


@part
def _younger(cells, queues, hand):
    """The place of the next younger object, or nowhere."""
    hand += 1
    while hand < queues[0, YOUNG]:
        if cells[queues[0, FIRST] + (hand & queues[0, MASK])] >= 0:
            return hand
        hand += 1
    return NOWHERE
