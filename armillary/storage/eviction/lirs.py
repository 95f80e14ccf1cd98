"""LIRS: an object that was used twice within a short time stays, however long ago; all others share one hundredth of the cache.

The distance between the last two uses (inter-reference recency) decides, and not the last use. Stack S holds objects by their last use.
The low-distance objects (LIR) have most of the cache, and the oldest of them closes S. All others (HIR) are cached only while they are in
the short queue Q, and those in S are remembered after they leave Q. A HIR object that is used while it is in S has shown a shorter
distance than the oldest LIR object, so the two change roles. S is cut to twice the capacity by forgetting the objects that left longest
ago. An object larger than Q is not admitted.

A use of a cached HIR object that is not in S puts it on S again and changes no roles. libCacheSim also demotes the oldest LIR object
then, and `demote=True` does the same.

S. Jiang, X. Zhang: LIRS: an efficient low inter-reference recency set replacement policy to improve buffer cache performance. SIGMETRICS
2002.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, oldest, part, pop, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, Ring, State, Table, is_use, operation_at, record, whole


@dataclass(frozen=True)
class Lirs(Policy):
    """Low inter-reference recency set."""

    hir: float = parameter(0.01, "share of the cache for objects of high inter-reference recency", range=(0.0001, 0.5))
    demote: bool = parameter(False, "whether a use of a cached object outside S also demotes the oldest LIR object, as in libCacheSim")

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        queue = whole(self.hir, capacity)
        return State(
            _run, capacity, sized=sized,
            tables={"where": Table(np.uint8), "stack_slot": Table(np.int32), "slot": Table(np.int32)},
            rings=[Ring(2 * capacity + 1, "stack_slot"), Ring(capacity), Ring(2 * capacity + 1)],
            numbers=[queue, capacity - queue, 0, int(self.demote)], remembered=capacity, ghosts=[IN_S], entries=3 * capacity + queue,
        )  # fmt: skip


#: Sizes of Q and of the LIR set, what the LIR set holds, and the parameter.
QUEUE_SIZE, LIR_SIZE, LIR_USED, DEMOTE = OWN, OWN + 1, OWN + 2, OWN + 3
#: S, Q, and the objects of S that are no longer cached, by when they left.
S, Q, GONE = 0, 1, 2
#: Bits of `where`.
CACHED, LIR, IN_S = 1, 2, 4
NOBODY = -1


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, stack_slot, slot, cells, queues):
    # where: bits; 0 unknown. Invariant: cached = LIR + Q; LIR and GONE are in S; the oldest of S is LIR if there is any LIR object.
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if where[o] & CACHED and not is_use(operation, sizes, held, i, o):
            _forget(numbers, held, where, stack_slot, slot, cells, queues, o)
        known = where[o]
        size = size_of(held, o) if known & CACHED else size_at(sizes, i)
        too_large = size > numbers[QUEUE_SIZE] or size > max(numbers[LIR_SIZE], 1)
        if operation == DELETE or (too_large and not known & CACHED):
            continue
        hits[i] = known & CACHED and operation == LOOKUP
        alters_bottom = not known & LIR or oldest(cells, queues, S) == o
        if known & IN_S:
            leave(cells, queues, S, stack_slot, o, held)
        if known and not known & LIR:
            leave(cells, queues, Q if known & CACHED else GONE, slot, o, held)
        hold(held, o, size)
        push(cells, queues, S, stack_slot, o, size)
        numbers[MOVES] += 1
        if not alters_bottom:
            continue
        room = numbers[LIR_SIZE]
        to_queue = NOBODY
        if not known & LIR:
            if size <= room and (known & IN_S or (known == 0 and numbers[LIR_USED] + size <= room)):
                where[o] = CACHED | LIR | IN_S
                numbers[LIR_USED] += size
            else:
                where[o] = CACHED | IN_S
                to_queue = o
                if numbers[DEMOTE] and known and not known & IN_S:
                    room = max(room - size, 0)
        _settle(log, numbers, i, held, where, slot, cells, queues, to_queue, room)
        while queues[S, SIZE] > 2 * numbers[CAPACITY] and queues[GONE, SIZE] > 0:
            v = pop(cells, queues, GONE, held)
            leave(cells, queues, S, stack_slot, v, held)
            where[v] = 0


@part
def _settle(log, numbers, i, held, where, slot, cells, queues, v, room):
    """Puts v into Q, then demotes LIR objects to Q until they fit `room`; a LIR object is left at the bottom of S."""
    while True:
        if v != NOBODY:
            size = size_of(held, v)
            while queues[Q, SIZE] + size > numbers[QUEUE_SIZE]:
                _evict(log, numbers, i, held, where, slot, cells, queues)
            push(cells, queues, Q, slot, v, size)
        if numbers[LIR_USED] > 0:
            _prune(held, where, slot, cells, queues)
        if numbers[LIR_USED] <= room:
            return
        v = pop(cells, queues, S, held)
        numbers[LIR_USED] -= size_of(held, v)
        numbers[MOVES] += 1
        where[v] = CACHED
        if size_of(held, v) > numbers[QUEUE_SIZE]:
            where[v] = 0
            record(log, numbers, i, v, S)
            v = NOBODY


@part
def _evict(log, numbers, i, held, where, slot, cells, queues):
    """The oldest of Q leaves the cache; if it is in S, it is remembered."""
    v = pop(cells, queues, Q, held)
    where[v] &= ~CACHED
    if where[v] & IN_S:
        push(cells, queues, GONE, slot, v, size_of(held, v))
    record(log, numbers, i, v, Q)


@part
def _prune(held, where, slot, cells, queues):
    """Takes objects off the bottom of S until a LIR object is there."""
    v = oldest(cells, queues, S)
    while not where[v] & LIR:
        pop(cells, queues, S, held)
        if where[v] & CACHED:
            where[v] &= ~IN_S
        else:
            leave(cells, queues, GONE, slot, v, held)
            where[v] = 0
        v = oldest(cells, queues, S)


@part
def _forget(numbers, held, where, stack_slot, slot, cells, queues, o):
    """Takes a cached object out of all queues."""
    if where[o] & IN_S:
        leave(cells, queues, S, stack_slot, o, held)
    if where[o] & LIR:
        numbers[LIR_USED] -= size_of(held, o)
    else:
        leave(cells, queues, Q, slot, o, held)
    where[o] = 0
    if numbers[LIR_USED] > 0:
        _prune(held, where, slot, cells, queues)
