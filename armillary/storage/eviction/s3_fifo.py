"""S3-FIFO: most objects are asked for once, so a small queue lets them prove themselves.

A new object enters `small` (a tenth of the cache). If it is used often enough before it reaches the end, it moves to `main`; otherwise it
leaves, and only its number is remembered in `ghost`. An object that returns while it is remembered goes straight to `main`, which is a
CLOCK with a counter of up to three. No queue is reordered on a hit, because a hit only counts. Until the first eviction, newcomers that
find `small` full go to `main`, so nothing is evicted from a cache that has room.

An object larger than `small` is not admitted, because it would flush `small` for one request. Ghosts count their bytes where sizes count.

FIFO queues are all you need for cache eviction. SOSP 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, part, pop, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, Ring, State, Table, is_use, operation_at, record, whole


@dataclass(frozen=True)
class S3Fifo(Policy):
    """Three queues: small, main and ghost."""

    small: float = parameter(0.1, "share of the cache for newcomers", range=(0.001, 0.9))
    ghost: float = parameter(0.9, "objects remembered after they left, as a share of the cache", range=(0.0, 10.0))
    threshold: int = parameter(2, "uses in the small queue that earn a place in the main one", range=(1, 15))

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        small, ghost = whole(self.small, capacity), int(self.ghost * capacity)
        return State(
            _run, capacity, sized=sized, tables={"where": Table(np.uint8), "slot": Table(np.int32)},
            rings=[Ring(capacity), Ring(capacity), Ring(ghost)], ghosts=[(GHOST + 1) << 4], remembered=ghost,
            numbers=[small, ghost, self.threshold, max(ROUNDS, self.threshold), 0],
        )  # fmt: skip


SMALL_SIZE, GHOST_SIZE, THRESHOLD, CAP, HAS_EVICTED = OWN, OWN + 1, OWN + 2, OWN + 3, OWN + 4
SMALL, MAIN, GHOST = 0, 1, 2
#: Counter of the main queue: two bits.
ROUNDS = 3


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, cells, queues):
    # where: (queue + 1) << 4 | uses; 0 unknown. Invariant: small + main <= capacity, ghost <= its share, no object in two queues.
    capacity, small, cap = numbers[CAPACITY], numbers[SMALL_SIZE], numbers[CAP]
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        known = where[o] >> 4
        remembered = known == GHOST + 1
        if known and not remembered:
            if is_use(operation, sizes, held, i, o):
                if where[o] & 15 < cap:
                    where[o] += 1
                hits[i] = operation == LOOKUP
                continue
            where[o] = 0
            leave(cells, queues, known - 1, slot, o, held)
        size = size_at(sizes, i)
        if operation == DELETE:
            continue
        if remembered:
            where[o] = 0
            leave(cells, queues, GHOST, slot, o, held)
        if size > small:
            continue
        while queues[SMALL, SIZE] + queues[MAIN, SIZE] + size > capacity:
            numbers[HAS_EVICTED] = 1
            if queues[MAIN, SIZE] > capacity - small or queues[SMALL, SIZE] == 0:
                _evict_main(log, numbers, i, held, where, slot, cells, queues)
            else:
                _evict_small(log, numbers, i, held, where, slot, cells, queues)
        filling = not numbers[HAS_EVICTED] and queues[SMALL, SIZE] >= small
        q = MAIN if remembered or filling else SMALL
        push(cells, queues, q, slot, o, size)
        where[o] = (q + 1) << 4
        hold(held, o, size)
        numbers[MOVES] += 1


@part
def _evict_main(log, numbers, i, held, where, slot, cells, queues):
    """Lets the oldest objects of main go round while they have uses left; the first one without leaves."""
    while queues[MAIN, SIZE] > 0:
        v = pop(cells, queues, MAIN, held)
        uses = min(where[v] & 15, ROUNDS)
        if uses == 0:
            where[v] = 0
            record(log, numbers, i, v, MAIN)
            return
        push(cells, queues, MAIN, slot, v, size_of(held, v))
        where[v] = ((MAIN + 1) << 4) + uses - 1
        numbers[MOVES] += 1


@part
def _evict_small(log, numbers, i, held, where, slot, cells, queues):
    """Moves the oldest objects of small to main while they were used enough, with cleared counters; the first other one leaves."""
    while queues[SMALL, SIZE] > 0:
        v = pop(cells, queues, SMALL, held)
        if where[v] & 15 >= numbers[THRESHOLD]:
            push(cells, queues, MAIN, slot, v, size_of(held, v))
            where[v] = (MAIN + 1) << 4
            numbers[MOVES] += 1
            continue
        where[v] = 0
        record(log, numbers, i, v, SMALL)
        size = size_of(held, v)
        if size <= numbers[GHOST_SIZE]:
            while queues[GHOST, SIZE] + size > numbers[GHOST_SIZE]:
                where[pop(cells, queues, GHOST, held)] = 0
            push(cells, queues, GHOST, slot, v, size)
            where[v] = (GHOST + 1) << 4
        return
