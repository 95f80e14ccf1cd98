"""A list scheduler: ranks take the most urgent action that is ready, one after another in simulated time.

It makes orders for stages of any cost on any rank, where no closed form is known. On every stage, forward passes keep one order and
backward passes another; what a rank may choose is which of its stages goes next, and whether forward or backward. The smaller `urgency`
wins. A forward pass waits while the rank has `limit` micro-batches in flight on that stage, or while it would not fit the rank's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop

from ..simulation.schedule import IntArray, Schedule
from ..simulation.simulator import FloatArray


@dataclass(frozen=True, eq=False)
class Course:
    """Stages and the work that passes through them, as `list_schedule` takes it.

    `stage_rank`, `following`, `previous_slice` and `replica` are as in `Schedule`. `forward` and `backward` give the micro-batches of each
    stage in the order of their passes. `urgency_f` and `urgency_b` have the shape (stages, micro-batches), like `seconds_f` and
    `seconds_b`. `limit` is the number of micro-batches that may be in flight on a stage, `room` the bytes of each rank, `kept` and `keys`
    those of each stage and micro-batch. With `in_turn` a rank that just ran backward prefers a forward pass that is ready, as 1F1B does.
    """

    stage_rank: IntArray
    following: IntArray
    forward: tuple[IntArray, ...]
    backward: tuple[IntArray, ...]
    seconds_f: FloatArray
    seconds_b: FloatArray
    urgency_f: FloatArray
    urgency_b: FloatArray
    limit: IntArray
    transfer_s: FloatArray | float = 0.0
    previous_slice: IntArray | None = None
    replica: IntArray | None = None
    room: FloatArray | None = None
    kept: FloatArray | None = None
    keys: FloatArray | None = None
    in_turn: bool = False


def list_schedule(course: Course) -> Schedule:
    """The schedule that urgencies, limits and memory give. Raises an `InputError` if work is left that no rank may start."""
    stages, micros = course.seconds_f.shape
    ranks = int(course.stage_rank.max()) + 1
    preceding = np.full(stages, -1)
    inner = course.following >= 0
    preceding[course.following[inner]] = np.flatnonzero(inner)
    previous = np.full(micros, -1) if course.previous_slice is None else np.asarray(course.previous_slice, np.int64)
    after = np.full(micros, -1)
    after[previous[previous >= 0]] = np.flatnonzero(previous >= 0)
    count = np.array([len(each) for each in course.forward], np.int64)
    forward, backward = _padded(course.forward, micros), _padded(course.backward, micros)
    local = [np.flatnonzero(course.stage_rank == r) for r in range(ranks)]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in local])])
    shape = (stages, micros)
    zero = np.zeros(shape)
    total = 2 * int(count.sum())
    stage, kind, micro, rank = (np.zeros(total, np.int64) for _ in range(4))
    done = _run(
        starts, np.concatenate(local), course.stage_rank, course.following, preceding, previous, after, count, forward, backward,
        np.ascontiguousarray(course.seconds_f), np.ascontiguousarray(course.seconds_b), np.ascontiguousarray(course.urgency_f),
        np.ascontiguousarray(course.urgency_b), np.asarray(course.limit, np.int64),
        np.ascontiguousarray(np.broadcast_to(np.asarray(course.transfer_s, np.float64), shape)),
        np.full(ranks, np.inf) if course.room is None else np.asarray(course.room, np.float64),
        zero if course.kept is None else np.ascontiguousarray(course.kept),
        zero if course.keys is None else np.ascontiguousarray(course.keys), course.in_turn,
        stage, kind, micro, rank,
    )  # fmt: skip
    if done < total:
        raise InputError(f"the list schedule comes to a standstill after {done} of {total} actions: nothing more fits")
    order = np.argsort(rank, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=ranks))])
    return Schedule.of_arrays(
        offsets, stage[order], kind[order], micro[order], stage_rank=course.stage_rank, following=course.following, previous_slice=previous,
        replica=course.replica,
    )  # fmt: skip


def _padded(rows: tuple[IntArray, ...], width: int) -> IntArray:
    table = np.zeros((len(rows), max(1, width)), np.int64)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


def urgency(*keys: npt.ArrayLike) -> FloatArray:
    """Keys of a sort, the first counts most, as one number each: their places in the sorted order, equal keys having equal places."""
    tables = [np.asarray(key, np.float64) for key in np.broadcast_arrays(*[np.asarray(key, np.float64) for key in keys])]
    rows = np.stack([table.ravel() for table in tables], axis=1)
    _, place = np.unique(rows, axis=0, return_inverse=True)
    return place.reshape(tables[0].shape).astype(np.float64)


@loop
def _run(
    starts: Any, local: Any, stage_rank: Any, following: Any, preceding: Any, previous: Any, after: Any, count: Any, forward: Any,
    backward: Any, seconds_f: Any, seconds_b: Any, urgency_f: Any, urgency_b: Any, limit: Any, transfer: Any, room: Any, kept: Any,
    keys: Any, in_turn: Any, stage_of: Any, kind_of: Any, micro_of: Any, rank_of: Any,
) -> Any:  # fmt: skip
    # Invariant: ranks are taken by the time at which they can start something, so an input that arrives by then is known to have arrived.
    ranks, stages, micros = starts.shape[0] - 1, seconds_f.shape[0], seconds_f.shape[1]
    arrived_f = np.full((stages, micros), np.inf)
    arrived_b = np.full((stages, micros), np.inf)
    for s in range(stages):
        if preceding[s] < 0:
            arrived_f[s, :] = 0.0
    next_f = np.zeros(stages, np.int64)
    next_b = np.zeros(stages, np.int64)
    flying = np.zeros(stages, np.int64)
    done_b = np.zeros((stages, micros), np.bool_)
    free = np.zeros(ranks)
    memory = np.zeros(ranks)
    was_back = np.zeros(ranks, np.bool_)
    done = 0
    # The time at which each rank can start something; recomputed for ranks that something changed for.
    able = np.zeros(ranks)
    stale = np.ones(ranks, np.bool_)
    while True:
        at, r = np.inf, -1
        for q in range(ranks):
            if stale[q]:
                stale[q] = False
                able[q] = np.inf
                for j in range(starts[q], starts[q + 1]):
                    s = local[j]
                    if next_b[s] < next_f[s]:
                        k = backward[s, next_b[s]]
                        if after[k] < 0 or done_b[s, after[k]]:
                            able[q] = min(able[q], max(free[q], arrived_b[s, k]))
                    if next_f[s] < count[s] and flying[s] < limit[s]:
                        k = forward[s, next_f[s]]
                        if memory[q] + kept[s, k] + keys[s, k] <= room[q]:
                            able[q] = min(able[q], max(free[q], arrived_f[s, k]))
            if able[q] < at:
                at, r = able[q], q
        if r < 0:
            return done
        best, chosen, back = np.inf, -1, False
        turn = in_turn and was_back[r]
        for j in range(starts[r], starts[r + 1]):
            s = local[j]
            if next_b[s] < next_f[s]:
                k = backward[s, next_b[s]]
                if (
                    arrived_b[s, k] <= at
                    and (after[k] < 0 or done_b[s, after[k]])
                    and urgency_b[s, k] < best
                    and not (turn and chosen >= 0 and not back)
                ):
                    best, chosen, back = urgency_b[s, k], s, True
            if next_f[s] < count[s] and flying[s] < limit[s]:
                k = forward[s, next_f[s]]
                ready = arrived_f[s, k] <= at and memory[r] + kept[s, k] + keys[s, k] <= room[r]
                # In turn, any forward pass beats all backward passes.
                if ready and (urgency_f[s, k] < best or (turn and back)):
                    best, chosen, back = urgency_f[s, k], s, False
        s = chosen
        was_back[r] = back
        if back:
            k = backward[s, next_b[s]]
            next_b[s] += 1
            flying[s] -= 1
            free[r] = at + seconds_b[s, k]
            memory[r] -= kept[s, k]
            if previous[k] < 0:
                each = k
                while each >= 0:
                    memory[r] -= keys[s, each]
                    each = after[each]
            done_b[s, k] = True
            to = preceding[s]
            if to >= 0:
                arrived_b[to, k] = free[r] + (transfer[to, k] if stage_rank[to] != r else 0.0)
        else:
            k = forward[s, next_f[s]]
            next_f[s] += 1
            flying[s] += 1
            free[r] = at + seconds_f[s, k]
            memory[r] += kept[s, k] + keys[s, k]
            to = following[s]
            if to >= 0:
                arrived_f[to, k] = free[r] + (transfer[s, k] if stage_rank[to] != r else 0.0)
            else:
                arrived_b[s, k] = free[r]
        stage_of[done], kind_of[done], micro_of[done], rank_of[done] = s, 3 if back else 0, k, r
        done += 1
        stale[r] = True
        if to >= 0:
            stale[stage_rank[to]] = True
