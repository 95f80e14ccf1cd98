"""SLRU: several LRU queues one above the other, where every hit lifts an object by one queue.

Newcomers enter the lowest segment, so an object that is asked for once soon leaves, and only repeated uses take an object to the top. A
segment that is overfull passes its oldest object down, and an object that falls out of the lowest segment leaves. While there is room, a
newcomer enters the lowest segment that has some. An object larger than a segment is not admitted.

R. Karedla, J. S. Love, B. G. Wherry: Caching strategies to improve disk system performance, IEEE Computer 27(3), 1994.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, part, pop, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, Ring, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class Slru(Policy):
    """Segmented LRU with equal segments."""

    segments: int = parameter(4, "segments of equal size, at most as many as the cache has objects", range=(1, 15))

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        segments = min(self.segments, capacity)
        share = capacity // segments
        # The lowest segment may hold everything, and the others hold one object more than their share for a moment.
        rings = [Ring(capacity), *(Ring(share + 1) for _ in range(segments - 1))]
        tables = {"where": Table(np.uint8), "slot": Table(np.int32)}
        return State(_run, capacity, sized=sized, tables=tables, rings=rings, numbers=[share, 0])


SHARE, USED = OWN, OWN + 1


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, cells, queues):
    # where: segment + 1; 0 not cached. Invariant: no segment but the lowest holds more than its share.
    capacity, share, top = numbers[CAPACITY], numbers[SHARE], len(queues) - 1
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if where[o]:
            segment = where[o] - 1
            leave(cells, queues, segment, slot, o, held)
            if is_use(operation, sizes, held, i, o):
                segment = min(segment + 1, top)
                where[o] = segment + 1
                push(cells, queues, segment, slot, o, size_of(held, o))
                numbers[MOVES] += 1
                _cool(log, numbers, i, held, where, slot, cells, queues, segment)
                hits[i] = operation == LOOKUP
                continue
            where[o] = 0
            numbers[USED] -= size_of(held, o)
        size = size_at(sizes, i)
        if operation == DELETE or size > share:
            continue
        while numbers[USED] + size > capacity:
            segment = 0
            while queues[segment, SIZE] == 0:
                segment += 1
            _evict(log, numbers, i, held, where, cells, queues, segment)
        segment = 0
        while segment <= top and queues[segment, SIZE] + size > share:
            segment += 1
        if segment > top:
            segment = 0
        where[o] = segment + 1
        push(cells, queues, segment, slot, o, size)
        hold(held, o, size)
        numbers[USED] += size
        numbers[MOVES] += 1


@part
def _cool(log, numbers, i, held, where, slot, cells, queues, segment):
    """Passes objects down from `segment` as far as segments are overfull."""
    while segment > 0 and queues[segment, SIZE] > numbers[SHARE]:
        while queues[segment, SIZE] > numbers[SHARE]:
            v = pop(cells, queues, segment, held)
            where[v] = segment
            push(cells, queues, segment - 1, slot, v, size_of(held, v))
            numbers[MOVES] += 1
        segment -= 1
        while segment == 0 and queues[0, SIZE] > numbers[SHARE]:
            _evict(log, numbers, i, held, where, cells, queues, 0)


@part
def _evict(log, numbers, i, held, where, cells, queues, segment):
    v = pop(cells, queues, segment, held)
    where[v] = 0
    numbers[USED] -= size_of(held, v)
    record(log, numbers, i, v, segment)
