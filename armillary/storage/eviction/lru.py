"""LRU: the object whose last use is longest ago leaves.

An object that is asked for now is likely to be asked for again soon, so every use makes it the youngest. This has a price: every hit
rewrites the queue, under a lock where threads share the cache, and one scan through many objects flushes it.

P. J. Denning, The working set model for program behavior, Communications of the ACM 11(5), 1968.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, pop, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, Policy, Ring, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class Lru(Policy):
    """Least recently used."""

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        return State(_run, capacity, sized=sized, tables={"slot": Table(np.int32, -1)}, rings=[Ring(capacity)])


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, slot, cells, queues):
    # slot: the object's cell, -1 if it is not cached. Invariant: the queue holds the cached objects in order of their last use.
    capacity = numbers[CAPACITY]
    for i in range(len(objects)):
        fetch_ahead(slot, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if slot[o] >= 0:
            leave(cells, queues, 0, slot, o, held)
            if is_use(operation, sizes, held, i, o):
                push(cells, queues, 0, slot, o, size_of(held, o))
                numbers[MOVES] += 1
                hits[i] = operation == LOOKUP
                continue
            slot[o] = -1
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        while queues[0, SIZE] + size > capacity:
            v = pop(cells, queues, 0, held)
            slot[v] = -1
            record(log, numbers, i, v, 0)
        push(cells, queues, 0, slot, o, size)
        hold(held, o, size)
        numbers[MOVES] += 1
