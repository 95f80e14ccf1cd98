"""W-TinyLFU: a newcomer enters the main cache only if it is asked for more often than the object that it would replace.

Everything enters a small LRU window, so that a burst can be served at once. An object that falls out of the window is a candidate: while
the main cache is full, it must have a higher estimated frequency than the main cache's own victim, or it leaves. The main cache is an
SLRU of two segments, probation and protected, where protected holds objects that were used in probation. Frequencies come from a
count-min sketch of four rows of 4-bit counters that remember objects whether they are cached or not. All counters are halved after ten
requests per object of the cache, so the sketch forgets.

With bytes, a candidate must beat every victim whose room it needs, one after another, and an object larger than the window is a candidate
at once; `object_bytes` says how many objects to expect. An object larger than the main cache is not admitted.

G. Einziger, R. Friedman, B. Manes: TinyLFU: a highly efficient cache admission policy. ACM Transactions on Storage 13(4), 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, oldest, part, pop, push, size_at, size_of
from .simulation.policy import DELETE, LOOKUP, MOVES, OWN, Policy, Ring, State, Table, is_use, operation_at, record, whole


@dataclass(frozen=True)
class WTinyLfu(Policy):
    """An LRU window, a frequency filter and a segmented LRU."""

    window: float = parameter(0.01, "share of the cache for the window", range=(0.0, 0.99))
    protected: float = parameter(0.8, "share of the main cache that is protected", range=(0.0, 0.99))
    period: float = parameter(10.0, "requests per object of the cache after which counters are halved", range=(1.0, 1000.0))
    counters: int = parameter(4, "counters in each row per object of the cache; 4 counters take 8 bytes", range=(1, 64))
    object_bytes: int = parameter(4096, "expected bytes of an object, to size the sketch where sizes count", range=(1, 2**40))

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        window = whole(self.window, capacity)
        objects = max(16, capacity // self.object_bytes if sized else capacity)
        period = min(int(self.period * objects), 2**62)
        width = 1 << (min(self.counters * objects, MOST_COUNTERS) - 1).bit_length()
        return _TinyState(
            _run, capacity, sized=sized,
            tables={"where": Table(np.uint8), "slot": Table(np.int32), "name": Table(np.int32, OWN_NUMBER)},
            rings=[Ring(capacity), Ring(capacity), Ring(capacity)], fixed=[np.zeros(ROWS * width // 2, np.uint8)],
            numbers=[window, capacity - window, int(self.protected * (capacity - window)), width - 1, period, 0],
        )  # fmt: skip


WINDOW_SIZE, MAIN_SIZE, PROTECTED_SIZE, WIDTH_MASK, PERIOD, COUNTED = OWN, OWN + 1, OWN + 2, OWN + 3, OWN + 4, OWN + 5
WINDOW, PROBATION, PROTECTED = 0, 1, 2
ROWS, MOST_COUNT = 4, 15
MOST_COUNTERS = 2**26
#: In `name`: the sketch knows the object by its number; a mapping, which reuses numbers, writes the hash of the key.
OWN_NUMBER = -1


class _TinyState(State):
    def rename(self, o: int, name: int) -> None:
        """The sketch knows object o by `name` from now on."""
        self.table("name")[o] = name & (2**31 - 1)


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, name, cells, queues, sketch):
    # where: queue + 1; 0 not cached. Invariant: window, protected and main are within their sizes when a request is done.
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if operation != DELETE:
            _count(numbers, sketch, name, o)
        if where[o]:
            q = where[o] - 1
            leave(cells, queues, q, slot, o, held)
            if is_use(operation, sizes, held, i, o):
                _join(numbers, held, where, slot, cells, queues, WINDOW if q == WINDOW else PROTECTED, o)
                while queues[PROTECTED, SIZE] > numbers[PROTECTED_SIZE]:
                    _join(numbers, held, where, slot, cells, queues, PROBATION, pop(cells, queues, PROTECTED, held))
                hits[i] = operation == LOOKUP
                continue
            where[o] = 0
        size = size_at(sizes, i)
        if operation == DELETE or size > max(numbers[WINDOW_SIZE], numbers[MAIN_SIZE]):
            continue
        hold(held, o, size)
        if size > numbers[WINDOW_SIZE]:
            _admit(log, numbers, i, held, where, slot, name, cells, queues, sketch, o)
            continue
        _join(numbers, held, where, slot, cells, queues, WINDOW, o)
        while queues[WINDOW, SIZE] > numbers[WINDOW_SIZE]:
            _admit(log, numbers, i, held, where, slot, name, cells, queues, sketch, pop(cells, queues, WINDOW, held))


@part
def _admit(log, numbers, i, held, where, slot, name, cells, queues, sketch, candidate):
    """Lets the candidate, which is in no queue now, enter probation if it beats the objects that it would replace; else it leaves."""
    size = size_of(held, candidate)
    often = _estimate(numbers, sketch, name, candidate)
    while size <= numbers[MAIN_SIZE] and queues[PROBATION, SIZE] + queues[PROTECTED, SIZE] + size > numbers[MAIN_SIZE]:
        q = PROBATION if queues[PROBATION, SIZE] else PROTECTED
        if often <= _estimate(numbers, sketch, name, oldest(cells, queues, q)):
            break
        v = pop(cells, queues, q, held)
        where[v] = 0
        record(log, numbers, i, v, q)
    if queues[PROBATION, SIZE] + queues[PROTECTED, SIZE] + size > numbers[MAIN_SIZE]:
        where[candidate] = 0
        record(log, numbers, i, candidate, WINDOW)
    else:
        _join(numbers, held, where, slot, cells, queues, PROBATION, candidate)


@part
def _join(numbers, held, where, slot, cells, queues, q, o):
    push(cells, queues, q, slot, o, size_of(held, o))
    where[o] = q + 1
    numbers[MOVES] += 1


@part
def _counter(numbers, name, o, row):
    """The counter of object o in this row, where a byte holds two counters."""
    own = name[o]
    h = np.uint64(o if own == OWN_NUMBER else own) + np.uint64(1)
    h = (h + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xD6E8FEB86659FD93)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return row * (numbers[WIDTH_MASK] + 1) + (np.int64(h >> np.uint64(32)) & numbers[WIDTH_MASK])


@part
def _estimate(numbers, sketch, name, o):
    least = MOST_COUNT
    for row in range(ROWS):
        at = _counter(numbers, name, o, row)
        least = min(least, (np.int64(sketch[at >> 1]) >> (4 * (at & 1))) & 15)
    return least


@part
def _count(numbers, sketch, name, o):
    """Counts one request for o in every row, and halves all counters when it is time."""
    for row in range(ROWS):
        at = _counter(numbers, name, o, row)
        shift = 4 * (at & 1)
        if (np.int64(sketch[at >> 1]) >> shift) & 15 < MOST_COUNT:
            sketch[at >> 1] += 1 << shift
    numbers[COUNTED] += 1
    if numbers[COUNTED] >= numbers[PERIOD]:
        numbers[COUNTED] = 0
        for k in range(len(sketch)):
            sketch[k] = (sketch[k] >> 1) & 0x77
