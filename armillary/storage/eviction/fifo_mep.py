"""FIFO-MEP: one queue with several eviction points at fixed distances from its young end.

Every object that drifts past a point is inspected. If it was not used since the last inspection, it leaves; otherwise its mark is cleared
and it drifts on to the next point. A burst object (many hits right after insertion, none later) passes the first point and falls at the
second, where S3-FIFO would have promoted it for a long stay. The points do not move, as SIEVE's hand does, so an unused object always
lives exactly as long as it takes to reach the first point, which is called stable demotion. A hit writes one byte, and only if it
changes.

Fixed points near the insertion end, repeated inspection and lazy promotion are the paper's. The following parts are our design: the queue
as m+1 rings end to end (segments 0…m, where m is the body and its oldest object the tail), the ghost that remembers objects which left at
a point and lets them return to the body, counters of up to `cap`, dropping points beyond a tiny cache, and the form for bytes. In that
form sizes replace counts, the points become byte positions, and an object larger than segment 0 goes straight to the body and is never
pushed out by its own insertion.

With one point it is S3-FIFO without the promotion threshold, and with none it is CLOCK.

FIFO-MEP: An Efficient Multi-Eviction-Point FIFO Cache with Stable Demotion for Burst-Oriented Access Mitigation. IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from armillary.arena import Claim, Gain, Kind, Level, Wins
from armillary.errors import InputError
from armillary.parameters import parameter

from ..queue import SIZE, fetch_ahead, hold, kernel, leave, part, pop, push, size_at, size_of
from .simulation.policy import CAPACITY, DELETE, LOOKUP, MOVES, OWN, Policy, Ring, State, Table, is_use, operation_at, record


@dataclass(frozen=True)
class FifoMep(Policy):
    """A first-in-first-out queue with several eviction points."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "miss_reduction", by=Level(at_least=0.158), on=Kind("objects"), honest=(0.11, 0.30), part=0.06,
            says="misses 15.8 % less than FIFO on average over 5439 traces",
            why="nine generated mixtures at three cache sizes stand for 5439 production traces",
        ),
        Claim(
            "miss_ratio", over="s3-fifo", by=Gain(percent=(21.8, None)), on=Kind("objects", "large"), aggregate="max",
            honest=(10, None), part=4,
            says="up to 21.8 % fewer misses than S3-FIFO with large caches",
            why="the best of nine generated mixtures cannot be as extreme as the best of 5439 traces",
        ),
        Claim(
            "miss_ratio", by=Wins(0.51), on=Kind("objects"), honest=(0.45, None), part=0.30, says="the best policy on 51 % of traces",
            why="W-TinyLFU competes here too",
        ),
    )  # fmt: skip

    points: tuple[float, ...] = parameter(
        (0.1, 0.2), "eviction points, shares of the cache from its young end, increasing", range=(0.0, 1.0)
    )
    cap: int = parameter(3, "largest value of the use counter", range=(1, 15))
    ghost: float = parameter(0.9, "point evictions for which an object is remembered, as a share of the cache", range=(0.0, 10.0))
    reinsert: Literal["body", "head"] = parameter("body", "where a used tail goes: the young end of the body, or of the whole queue")

    def validate(self) -> None:
        """The points increase strictly inside (0, 1), and there are at most 13."""
        inside = all(0 < p < 1 for p in self.points) and all(a < b for a, b in zip(self.points, self.points[1:]))
        if not inside or len(self.points) > MOST_POINTS:
            expected = f"at most {MOST_POINTS}, strictly increasing, between 0 and 1"
            raise InputError(f"found {list(self.points)}; expected {expected}", where="points")

    def positions(self, capacity: int) -> list[int]:
        """P_j = max(P_{j-1} + 1, floor(p_j * capacity)); a point at or beyond the end of a tiny cache is dropped."""
        at: list[int] = []
        for point in self.points:
            at.append(max(at[-1] + 1 if at else 1, int(point * capacity)))
        return [position for position in at if position < capacity]

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        capacity = self.checked(capacity)
        ends = [0, *self.positions(capacity), capacity]
        segments = np.diff(ends).astype(np.int64)
        ghost = int(self.ghost * capacity)
        return _MepState(
            _run, capacity, sized=sized, tables={"where": Table(np.uint8), "slot": Table(np.int32), "stamp": Table(np.int64)},
            # A segment holds one object more than its size for a moment; the body too, and all that explicit deletions leave it.
            rings=[*(Ring(int(size) + 1) for size in segments[:-1]), Ring(capacity + 1)], fixed=[segments],
            numbers=[self.cap, ghost, 0, int(self.reinsert == "head"), 0], remembered=ghost, entries=capacity,
        )  # fmt: skip


MOST_POINTS = 13
#: Largest counter, ghost size, what was evicted at points so far, whether tails go to the head, what the cache holds.
CAP, GHOST_SIZE, POINTED, TO_HEAD, USED = OWN, OWN + 1, OWN + 2, OWN + 3, OWN + 4


class _MepState(State):
    def remembers(self, o: int) -> bool:
        stamp = self.table("stamp")[o]
        return super().remembers(o) or bool(stamp and self.numbers[POINTED] - stamp < self.numbers[GHOST_SIZE])


@kernel
def _run(objects, sizes, operations, hits, log, numbers, held, where, slot, stamp, cells, queues, segments):
    # where: (segment + 1) << 4 | uses; 0 not cached. stamp: what had been evicted at points when the object was, itself included; 0 if
    # it was not, or has returned. In the ghost: less than GHOST_SIZE evicted since.
    capacity, cap, body = numbers[CAPACITY], numbers[CAP], len(segments) - 1
    for i in range(len(objects)):
        fetch_ahead(where, objects, i)
        o = objects[i]
        operation = operation_at(operations, i)
        if where[o]:
            if is_use(operation, sizes, held, i, o):
                if where[o] & 15 < cap:
                    where[o] += 1
                hits[i] = operation == LOOKUP
                continue
            numbers[USED] -= size_of(held, o)
            leave(cells, queues, (where[o] >> 4) - 1, slot, o, held)
            where[o] = 0
        size = size_at(sizes, i)
        if operation == DELETE or size > capacity:
            continue
        remembered = stamp[o] > 0 and numbers[POINTED] - stamp[o] < numbers[GHOST_SIZE]
        stamp[o] = 0
        # A newcomer that nothing inspects before the body waits until the body has room, as in CLOCK.
        direct = not remembered and (body == 0 or size > segments[0])
        segment = body if remembered or direct else 0
        hold(held, o, size)
        numbers[USED] += size
        if not direct:
            _join(numbers, held, where, slot, cells, queues, segment, o, 0)
        if numbers[USED] > capacity or queues[segment, SIZE] > segments[segment]:
            _restore(log, numbers, i, o, held, where, slot, stamp, cells, queues, segments)
        if direct:
            _join(numbers, held, where, slot, cells, queues, segment, o, 0)


@part
def _join(numbers, held, where, slot, cells, queues, segment, o, uses):
    push(cells, queues, segment, slot, o, size_of(held, o))
    where[o] = ((segment + 1) << 4) + uses
    numbers[MOVES] += 1


@part
def _restore(log, numbers, i, o, held, where, slot, stamp, cells, queues, segments):
    """Shrinks segments and cache to their sizes after o was counted in, whether it is in its queue already or about to join it."""
    capacity, body = numbers[CAPACITY], len(segments) - 1
    j = 0
    while True:
        while j < body and queues[j, SIZE] <= segments[j]:
            j += 1
        full = numbers[USED] > capacity
        if j < body:
            v = pop(cells, queues, j, held)
            if full and where[v] & 15 == 0:
                _evict(log, numbers, i, v, j, held, where)
                numbers[POINTED] += size_of(held, v)
                stamp[v] = numbers[POINTED]
            else:
                _join(numbers, held, where, slot, cells, queues, j + 1, v, 0 if full else where[v] & 15)
            continue
        if not full:
            return
        # The tail; where the body has nobody but the newcomer, the oldest of the segment before.
        source = body
        newcomer = size_of(held, o) if where[o] >> 4 == body + 1 else 0
        while queues[source, SIZE] == (newcomer if source == body else 0):
            source -= 1
        v = pop(cells, queues, source, held)
        uses = where[v] & 15
        if v == o:
            _join(numbers, held, where, slot, cells, queues, body, v, uses)
        elif uses == 0:
            _evict(log, numbers, i, v, body, held, where)
        elif numbers[TO_HEAD] and size_of(held, v) <= segments[0]:
            _join(numbers, held, where, slot, cells, queues, 0, v, uses - 1)
            j = 0
        else:
            _join(numbers, held, where, slot, cells, queues, body, v, uses - 1)


@part
def _evict(log, numbers, i, v, place, held, where):
    where[v] = 0
    numbers[USED] -= size_of(held, v)
    record(log, numbers, i, v, place)
