"""CLOCK: a queue in which an object that was used goes round once more.

A hit sets a counter and moves nothing. When room is needed, the oldest object leaves if its counter is zero; otherwise the counter goes
down by one and the object becomes the youngest. This is nearly LRU's choice at nearly FIFO's price, because work is done only at
evictions.

F. J. Corbató: A paging experiment with the Multics system, 1969. It is also called second chance and FIFO-Reinsertion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, pop, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, Ring, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class Clock(Policy):
    """First in, first out, with a second chance for objects that were used."""

    bits: int = parameter(1, "bits of the use counter, which allow 2^bits - 1 rounds without a use", range=(1, 7))

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        tables = {"where": Table(np.uint8), "slot": Table(np.int32)}
        return State(_run, capacity, sized=sized, tables=tables, rings=[Ring(capacity)], numbers=[2**self.bits - 1])


CAP = OWN


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, cells, queues):
    # where: 0 not cached, else the use counter plus one.
    capacity, cap = numbers[CAPACITY], numbers[CAP]
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if where[o]:
            if is_use(operation, sizes, held, i, o):
                if where[o] <= cap:
                    where[o] += 1
                hits[i] = operation == LOOKUP
                continue
            where[o] = 0
            leave(cells, queues, 0, slot, o, held)
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        while queues[0, SIZE] + size > capacity:
            v = pop(cells, queues, 0, held)
            where[v] -= 1
            if where[v]:
                push(cells, queues, 0, slot, v, size_of(held, v))
                numbers[MOVES] += 1
            else:
                record(log, numbers, i, v, 0)
        push(cells, queues, 0, slot, o, size)
        where[o] = 1
        hold(held, o, size)
        numbers[MOVES] += 1
