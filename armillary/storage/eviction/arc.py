"""ARC: one LRU queue for objects that were used once, one for objects that were used again, and a border between them that adapts.

T1 and T2 are the queues, and B1 and B2 remember the objects that left them. A request for an object in B1 says that T1 is too small, and
one in B2 says that T2 is. The target size p of T1 moves by the ratio of the two memories, and by at least one. The oldest object of T1
leaves while T1 is above its target, and the oldest of T2 leaves otherwise. Objects that return from a memory enter T2.

N. Megiddo, D. S. Modha: ARC: a self-tuning, low overhead replacement cache. FAST 2003.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, part, pop, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, Policy, Ring, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class Arc(Policy):
    """Adaptive replacement cache."""

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        tables = {"where": Table(np.uint8), "slot": Table(np.int32)}
        rings = [Ring(capacity), Ring(capacity), Ring(2 * capacity), Ring(2 * capacity)]
        return _ArcState(
            _run, capacity, sized=sized, tables=tables, rings=rings, fixed=[np.zeros(1)], ghosts=[B1 + 1, B2 + 1], remembered=capacity
        )  # fmt: skip


T1, T2, B1, B2 = 0, 1, 2, 3


class _ArcState(State):
    @property
    def target(self) -> float:
        """p, the size that T1 should have."""
        return float(self.fixed[0][0])


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, cells, queues, target):
    # where: queue + 1; 0 unknown. Invariant: T1 + T2 <= capacity; with unit sizes all four together hold at most twice the capacity.
    capacity = numbers[CAPACITY]
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        known = where[o]
        if known == T1 + 1 or known == T2 + 1:
            leave(cells, queues, known - 1, slot, o, held)
            if is_use(operation, sizes, held, i, o):
                push(cells, queues, T2, slot, o, size_of(held, o))
                where[o] = T2 + 1
                numbers[MOVES] += 1
                hits[i] = operation == LOOKUP
                continue
            where[o] = 0
            known = 0
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        if known:
            if known == B1 + 1:
                target[0] = min(target[0] + max(queues[B2, SIZE] / queues[B1, SIZE], 1.0), float(capacity))
            else:
                target[0] = max(target[0] - max(queues[B1, SIZE] / queues[B2, SIZE], 1.0), 0.0)
            where[o] = 0
            leave(cells, queues, known - 1, slot, o, held)
        while queues[T1, SIZE] + queues[T2, SIZE] + size > capacity:
            if known == 0:
                in_l1 = queues[T1, SIZE] + queues[B1, SIZE]
                if in_l1 + size > capacity:
                    if queues[B1, SIZE] == 0:
                        v = pop(cells, queues, T1, held)
                        where[v] = 0
                        record(log, numbers, i, v, T1)
                        continue
                    where[pop(cells, queues, B1, held)] = 0
                elif in_l1 + queues[T2, SIZE] + queues[B2, SIZE] >= 2 * capacity and queues[B2, SIZE] > 0:
                    where[pop(cells, queues, B2, held)] = 0
            _replace(log, numbers, i, held, where, slot, cells, queues, target[0], known == B2 + 1)
        q = T2 if known else T1
        push(cells, queues, q, slot, o, size)
        where[o] = q + 1
        hold(held, o, size)
        numbers[MOVES] += 1


@part
def _replace(log, numbers, i, held, where, slot, cells, queues, target, from_b2):
    """The oldest of T1 or of T2 leaves and is remembered."""
    in_t1 = queues[T1, SIZE]
    q = T1 if (in_t1 > 0 and (in_t1 > target or (in_t1 == target and from_b2))) or queues[T2, SIZE] == 0 else T2
    v = pop(cells, queues, q, held)
    record(log, numbers, i, v, q)
    push(cells, queues, q + 2, slot, v, size_of(held, v))
    where[v] = q + 3
    numbers[MOVES] += 1
