"""Random: any cached object may leave.

It does no bookkeeping on hits and keeps no order, so it shows what is left of a policy that knows nothing. Loops, on which LRU never
hits, cannot mislead it.

L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from ..queue import fetch_ahead, hold, kernel, part, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class Random(Policy):
    """Evicts a cached object that is drawn uniformly; equal techniques draw the same objects in every run."""

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        seed = int(copy.deepcopy(self.rng).integers(2**63 - 1))
        tables, pools = {"slot": Table(np.int32, -1)}, {"cached": Table(np.int32)}
        return State(_run, capacity, sized=sized, tables=tables, pools=pools, numbers=[seed, 0, 0])


DRAWN, COUNT, USED = OWN, OWN + 1, OWN + 2


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, slot, cached):
    # Invariant: cached[:COUNT] are the cached objects, and slot[cached[k]] == k; slot is -1 elsewhere.
    capacity = numbers[CAPACITY]
    for i in range(len(objects)):
        fetch_ahead(slot, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if slot[o] >= 0:
            if is_use(operation, sizes, held, i, o):
                hits[i] = operation == LOOKUP
                continue
            _remove(numbers, held, slot, cached, o)
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        while numbers[USED] + size > capacity:
            v = cached[_draw(numbers, numbers[COUNT])]
            _remove(numbers, held, slot, cached, v)
            record(log, numbers, i, v, 0)
        slot[o] = numbers[COUNT]
        cached[numbers[COUNT]] = o
        numbers[COUNT] += 1
        numbers[USED] += size
        hold(held, o, size)
        numbers[MOVES] += 1


@part
def _remove(numbers, held, slot, cached, o):
    """The last object takes the place of o."""
    numbers[COUNT] -= 1
    numbers[USED] -= size_of(held, o)
    last = cached[numbers[COUNT]]
    cached[slot[o]] = last
    slot[last] = slot[o]
    slot[o] = -1


@part
def _draw(numbers, below):
    """A number in [0, below), below < 2^31: SplitMix64, whose high half is scaled."""
    numbers[DRAWN] += np.int64(-7046029254386353131)
    z = np.uint64(numbers[DRAWN])
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(32)) * np.uint64(below)) >> np.uint64(32))
