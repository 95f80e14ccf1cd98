"""FIFO: the object that came first leaves first.

A hit changes nothing, so it needs no lock and writes no memory. The price is that the most wanted object leaves as soon as the queue has
turned once. Every other policy here is measured against it.

L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, pop, push, size_at
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, Policy, Ring, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class Fifo(Policy):
    """First in, first out."""

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        return State(_run, capacity, sized=sized, tables={"where": Table(np.uint8), "slot": Table(np.int32)}, rings=[Ring(capacity)])


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, cells, queues):
    # where: 1 cached, 0 not. Invariant: the queue holds the cached objects, young to old in order of insertion.
    capacity = numbers[CAPACITY]
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if where[o]:
            if is_use(operation, sizes, held, i, o):
                hits[i] = operation == LOOKUP
                continue
            where[o] = 0
            leave(cells, queues, 0, slot, o, held)
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        while queues[0, SIZE] + size > capacity:
            v = pop(cells, queues, 0, held)
            where[v] = 0
            record(log, numbers, i, v, 0)
        push(cells, queues, 0, slot, o, size)
        where[o] = 1
        hold(held, o, size)
        numbers[MOVES] += 1
