"""From messages of blocks to a schedule: where each block lies, what must be copied, and what can be sent from where it is.

A stage first holds what it is given (the window: the blocks of the node's ranks), then each message that arrives, in order. Blocks that lie
one behind the other in the order of a message are sent from there; otherwise the sender first copies them into a piece of its own. A copy
is a *run*: blocks that are neighbours on both sides are copied at once. A message that is exactly what some slots of its receiver want
goes straight into them if the stage is the receiver's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.kernels import loop

from ..graphs.neighbours import Ints
from .problem import Problem
from .schedule import RECV, SEND, STAGE, Schedule
from .traffic import Messages

#: Faults of a plan, which would be the planner's own.
_FINE, _NOT_HELD, _NOT_DELIVERED = 0, 1, 2


def laid_out(
    name: str, problem: Problem, messages: Messages, shared: bool, why: str = "", chosen: dict[str, Any] | None = None
) -> Schedule:
    """The schedule that carries these messages. A block that is sent or delivered from where it never came is an error of the planner."""
    shared = shared and problem.most_local > 1
    stores = problem.nodes if shared else problem.ranks
    store_of = problem.node_of if shared else np.arange(problem.ranks, dtype=np.int32)
    members, member_start = _by_store(store_of, stores)
    out_order, out_start = _by_store(store_of[messages.source], stores)
    in_order, in_start = _by_store(store_of[messages.destination], stores)
    count = len(messages.step)
    nbytes = np.zeros(count, np.int64)
    ends = np.concatenate(([0], np.cumsum(problem.block_bytes[messages.blocks])))
    nbytes[:] = ends[messages.start[1:]] - ends[messages.start[:-1]]
    from_place, to_place = np.full(count, STAGE, np.int8), np.full(count, STAGE, np.int8)
    from_at, to_at = np.zeros(count, np.int64), np.zeros(count, np.int64)
    stage_bytes = np.zeros(stores, np.int64)
    fault, copies = _lay_out(
        shared, members, member_start, out_order, out_start, in_order, in_start,
        messages.step, messages.source, messages.destination, messages.start, messages.blocks, messages.steps, nbytes,
        problem.graph.in_start, problem.graph.sources, problem.slot_at, problem.block_bytes,
        from_place, from_at, to_place, to_at, stage_bytes,
    )  # fmt: skip
    if fault[0] != _FINE:
        what = "sends" if fault[0] == _NOT_HELD else "is to receive"
        raise RuntimeError(f"{name}: rank {fault[1]} {what} block {fault[2]}, which never came to it")
    order = np.lexsort((copies[:, 1], copies[:, 0]))
    copies = copies[order]
    last = max(messages.steps, int(copies[-1, 0]) + 1 if len(copies) else 0)
    return Schedule(
        name, problem, shared, stage_bytes, last, messages.step, messages.source, messages.destination, nbytes,
        from_place, from_at, to_place, to_at,
        copies[:, 0].copy(), copies[:, 1].astype(np.int32), copies[:, 2].copy(), copies[:, 3].astype(np.int8), copies[:, 4].copy(),
        copies[:, 5].astype(np.int8), copies[:, 6].copy(), why, chosen,
    )  # fmt: skip


def _by_store(store: Any, stores: int) -> tuple[Ints, Ints]:
    """The entries of each store in order, one after the other, and where each store's begin."""
    order = np.argsort(store, kind="stable").astype(np.int64)
    return order, np.concatenate(([0], np.cumsum(np.bincount(store, minlength=stores)))).astype(np.int64)


@loop
def _lay_out(  # type: ignore[no-untyped-def]
    shared, members, member_start, out_order, out_start, in_order, in_start,
    step, source, destination, start, blocks, steps, nbytes,
    slot_start, slot_source, slot_at, size,
    from_place, from_at, to_place, to_at, stage_bytes,
):  # fmt: skip
    """Fills the places of all messages, and returns the fault with the copies: step, rank, bytes, from, at, to, at.

    Invariant: `place[b]` is where block b lies in the store that is looked at, or -1 if it has not come yet.
    """
    ranks = len(size)
    place, at = np.full(ranks, -1, np.int8), np.zeros(ranks, np.int64)
    first_slot = np.full(ranks, -1, np.int64)
    landed = np.zeros(len(slot_source), np.bool_)
    copies = np.empty((1024, 7), np.int64)
    used = 0
    fault = np.zeros(3, np.int64)
    known = np.empty(len(blocks) + ranks, np.int64)
    for store in range(len(stage_bytes)):
        here = members[member_start[store] : member_start[store + 1]]
        top, held = 0, 0
        for rank in here:
            known[held] = rank
            held += 1
            if shared:
                place[rank], at[rank] = 1, top
                if size[rank] > 0:
                    copies, used = _copy(copies, used, 0, rank, size[rank], 0, 0, 1, top)
                top += size[rank]
            else:
                place[rank], at[rank] = 0, 0
        if not shared:
            rank = here[0]
            for slot in range(slot_start[rank + 1] - 1, slot_start[rank] - 1, -1):
                first_slot[slot_source[slot]] = slot
        sent, got = out_start[store], in_start[store]
        for now in range(steps):
            while sent < out_start[store + 1] and step[out_order[sent]] == now:
                message = out_order[sent]
                sent += 1
                for i in range(start[message], start[message + 1]):
                    if place[blocks[i]] < 0:
                        fault[0], fault[1], fault[2] = 1, source[message], blocks[i]
                        return fault, copies[:used]
                found, begin = _in_one_piece(start[message], start[message + 1], blocks, place, at, size, source[message])
                if found >= 0:
                    from_place[message], from_at[message] = found, begin
                    continue
                from_at[message] = top
                for i in range(start[message], start[message + 1]):
                    block = blocks[i]
                    if size[block] > 0:
                        copies, used = _copy(copies, used, now, source[message], size[block], place[block], at[block], 1, top)
                        top += size[block]
            while got < in_start[store + 1] and step[in_order[got]] == now:
                message = in_order[got]
                got += 1
                slot = -1
                if not shared and start[message] < start[message + 1]:
                    slot = _slots(start[message], start[message + 1], blocks, first_slot, slot_source, slot_start[here[0] + 1], landed)
                put = top
                if slot >= 0:
                    put = slot_at[slot]
                    to_place[message] = 2
                    for i in range(start[message + 1] - start[message]):
                        landed[slot + i] = True
                to_at[message] = put
                for i in range(start[message], start[message + 1]):
                    block = blocks[i]
                    if place[block] < 0:
                        place[block], at[block] = (2 if slot >= 0 else 1), put
                        known[held] = block
                        held += 1
                    put += size[block]
                if slot < 0:
                    top = put
        for rank in here:
            for slot in range(slot_start[rank], slot_start[rank + 1]):
                block = slot_source[slot]
                if landed[slot] or size[block] == 0:
                    continue
                if block == rank:
                    copies, used = _copy(copies, used, steps, rank, size[block], 0, 0, 2, slot_at[slot])
                elif place[block] < 0:
                    fault[0], fault[1], fault[2] = 2, rank, block
                    return fault, copies[:used]
                else:
                    copies, used = _copy(copies, used, steps, rank, size[block], place[block], at[block], 2, slot_at[slot])
        stage_bytes[store] = top
        for i in range(held):
            place[known[i]] = -1
        if not shared:
            for slot in range(slot_start[here[0]], slot_start[here[0] + 1]):
                first_slot[slot_source[slot]] = -1
    return fault, copies[:used]


@loop
def _copy(copies, used, step, rank, nbytes, place, begin, to, put):  # type: ignore[no-untyped-def]
    """Adds a copy, or makes the last one longer if this one continues it on both sides."""
    if used > 0:
        last = copies[used - 1]
        if (
            last[0] == step and last[1] == rank and last[3] == place and last[5] == to
            and last[4] + last[2] == begin and last[6] + last[2] == put
        ):  # fmt: skip
            last[2] += nbytes
            return copies, used
    if used == len(copies):
        grown = np.empty((2 * used, 7), np.int64)
        grown[:used] = copies
        copies = grown
    row = copies[used]
    row[0], row[1], row[2], row[3], row[4], row[5], row[6] = step, rank, nbytes, place, begin, to, put
    return copies, used + 1


@loop
def _in_one_piece(first, last, blocks, place, at, size, sender):  # type: ignore[no-untyped-def]
    """Where the blocks of a message lie one behind the other, as (place, offset), or (-1, 0). The sender's own block may lie in both."""
    if last - first == 1 and blocks[first] == sender:
        return 0, 0
    found, begin, end = -1, 0, 0
    for i in range(first, last):
        block = blocks[i]
        if size[block] == 0:
            continue
        if found < 0:
            found, begin, end = place[block], at[block], at[block]
        elif place[block] != found or at[block] != end:
            return -1, 0
        end += size[block]
    return (found, begin) if found >= 0 else (1, 0)


@loop
def _slots(first, last, blocks, first_slot, slot_source, end, landed):  # type: ignore[no-untyped-def]
    """The first of the receiver's slots that want exactly the blocks of a message in this order, or -1."""
    slot = first_slot[blocks[first]]
    # Of several slots for one block, the first that is still empty.
    while slot >= 0 and slot < end and landed[slot] and slot_source[slot] == blocks[first]:
        slot += 1
    if slot < 0 or slot + (last - first) > end:
        return -1
    for i in range(last - first):
        if slot_source[slot + i] != blocks[first + i] or landed[slot + i]:
            return -1
    return slot


assert (SEND, STAGE, RECV) == (0, 1, 2), "the compiled loop writes these numbers"
