"""2Q: newcomers wait in a short queue, and only objects that return after leaving it enter the LRU queue.

Hits in the short queue A1in do not count, because they belong to the same burst. Objects that fall out of it are remembered in A1out. An
object that is asked for while it is remembered has shown that it is wanted over a longer time, so it enters Am, which is LRU. An object
larger than A1in is not admitted.

T. Johnson, D. Shasha: 2Q: a low overhead high performance buffer management replacement algorithm. VLDB 1994.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, part, pop, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, Ring, State, Table, is_use, operation_at, record, whole


@dataclass(frozen=True)
class TwoQ(Policy):
    """A first-in-first-out queue in front of an LRU queue."""

    a1in: float = parameter(0.25, "share of the cache for newcomers", range=(0.001, 0.5))
    a1out: float = parameter(0.5, "objects remembered after they left A1in, as a share of the cache", range=(0.0, 10.0))

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        out = int(self.a1out * capacity)
        tables = {"where": Table(np.uint8), "slot": Table(np.int32)}
        rings = [Ring(capacity), Ring(capacity), Ring(out)]
        numbers = [whole(self.a1in, capacity), out]
        return State(_run, capacity, sized=sized, tables=tables, rings=rings, numbers=numbers, ghosts=[OUT + 1], remembered=out)


IN_SIZE, OUT_SIZE = OWN, OWN + 1
IN, MAIN, OUT = 0, 1, 2


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, cells, queues):
    # where: queue + 1; 0 unknown. Invariant: A1in + Am <= capacity, A1out <= its share.
    capacity, in_size = numbers[CAPACITY], numbers[IN_SIZE]
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        known = where[o]
        remembered = known == OUT + 1
        if known and not remembered:
            if is_use(operation, sizes, held, i, o):
                if known == MAIN + 1:
                    leave(cells, queues, MAIN, slot, o, held)
                    push(cells, queues, MAIN, slot, o, size_of(held, o))
                    numbers[MOVES] += 1
                hits[i] = operation == LOOKUP
                continue
            where[o] = 0
            leave(cells, queues, known - 1, slot, o, held)
        size = size_at(sizes, i)
        if operation == DELETE:
            continue
        if remembered:
            where[o] = 0
            leave(cells, queues, OUT, slot, o, held)
        if size > in_size:
            continue
        while queues[IN, SIZE] + queues[MAIN, SIZE] + size > capacity:
            if queues[IN, SIZE] > in_size or queues[MAIN, SIZE] == 0:
                _evict_in(log, numbers, i, held, where, slot, cells, queues)
            else:
                _evict_main(log, numbers, i, held, where, cells, queues)
        q = MAIN if remembered and size <= capacity - in_size else IN
        while q == MAIN and queues[MAIN, SIZE] + size > capacity - in_size:
            _evict_main(log, numbers, i, held, where, cells, queues)
        push(cells, queues, q, slot, o, size)
        where[o] = q + 1
        hold(held, o, size)
        numbers[MOVES] += 1


@part
def _evict_in(log, numbers, i, held, where, slot, cells, queues):
    v = pop(cells, queues, IN, held)
    where[v] = 0
    record(log, numbers, i, v, IN)
    size = size_of(held, v)
    if size <= numbers[OUT_SIZE]:
        while queues[OUT, SIZE] + size > numbers[OUT_SIZE]:
            where[pop(cells, queues, OUT, held)] = 0
        push(cells, queues, OUT, slot, v, size)
        where[v] = OUT + 1


@part
def _evict_main(log, numbers, i, held, where, cells, queues):
    v = pop(cells, queues, MAIN, held)
    where[v] = 0
    record(log, numbers, i, v, MAIN)
