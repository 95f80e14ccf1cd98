"""Belady: the object whose next request is furthest away leaves. It sees the future, so it is a bound and no policy.

No policy misses less on objects of one size. With sizes it is a good guess and no bound, because evicting one large object may spare many
small ones.

L. A. Belady: A study of replacement algorithms for a virtual-storage computer. IBM Systems Journal 5(2), 1966.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.errors import InputError

from ..queue import fetch_ahead, hold, kernel, part, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, State, Table, is_use, operation_at, record
from .workload import Trace


@dataclass(frozen=True)
class Belady(Policy):
    """The offline optimum for objects of one size."""

    oracle: ClassVar[bool] = True

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        tables = {"slot": Table(np.int32)}
        pools = {"due": Table(np.int64), "who": Table(np.int32)}
        return _BeladyState(_run, capacity, sized=sized, tables=tables, pools=pools, numbers=[0, 0])

    def mapping(
        self, capacity: int, *, getsizeof: Callable[[Any], int] | None = None, on_evict: Callable[[Any, Any], object] | None = None
    ) -> Any:
        """Raises InputError, because a program's future is not known."""
        raise InputError("a mapping does not know its future; expected a policy that does not look ahead", where="Belady")


class _BeladyState(State):
    def call(self, objects: Any, sizes: Any, operations: Any, hits: Any, log: Any, block: Trace | None = None) -> None:
        if block is None:
            raise InputError("requests without their future; expected a trace", where="Belady")
        future = np.ascontiguousarray(block.next_access())
        fixed, self.fixed = self.fixed, (*self.fixed, future)
        super().call(objects, sizes, operations, hits, log)
        self.fixed = fixed


COUNT, USED = OWN, OWN + 1


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, slot, due, who, future):
    # A binary heap with the latest on top: entries 1…COUNT of `due` (the next request) and `who`; slot[o] is the entry of o, 0 if it
    # is not cached.
    capacity = numbers[CAPACITY]
    for i in range(len(objects)):
        fetch_ahead(slot, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if slot[o]:
            if is_use(operation, sizes, held, i, o):
                due[slot[o]] = future[i]
                _rise(slot, due, who, slot[o])
                numbers[MOVES] += 1
                hits[i] = operation == LOOKUP
                continue
            _remove(numbers, held, slot, due, who, o)
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        while numbers[USED] + size > capacity:
            v = who[1]
            _remove(numbers, held, slot, due, who, v)
            record(log, numbers, i, v, 0)
        numbers[COUNT] += 1
        numbers[USED] += size
        at = numbers[COUNT]
        who[at] = o
        due[at] = future[i]
        _rise(slot, due, who, at)
        hold(held, o, size)
        numbers[MOVES] += 1


@part
def _remove(numbers, held, slot, due, who, o):
    """The last entry takes the place of o and finds its own."""
    at, last = slot[o], numbers[COUNT]
    numbers[COUNT] -= 1
    numbers[USED] -= size_of(held, o)
    slot[o] = 0
    if at == last:
        return
    who[at], due[at] = who[last], due[last]
    slot[who[at]] = at
    _rise(slot, due, who, at)
    _sink(slot, due, who, slot[who[at]], numbers[COUNT])


@part
def _rise(slot, due, who, at):
    o, when = who[at], due[at]
    while at > 1 and due[at >> 1] < when:
        who[at], due[at] = who[at >> 1], due[at >> 1]
        slot[who[at]] = at
        at >>= 1
    who[at], due[at] = o, when
    slot[o] = at


@part
def _sink(slot, due, who, at, count):
    o, when = who[at], due[at]
    while 2 * at <= count:
        child = 2 * at
        if child < count and due[child] < due[child + 1]:
            child += 1
        if due[child] <= when:
            break
        who[at], due[at] = who[child], due[child]
        slot[who[at]] = at
        at = child
    who[at], due[at] = o, when
    slot[o] = at
