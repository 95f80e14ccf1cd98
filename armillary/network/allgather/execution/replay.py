"""The time of a schedule in a compiled loop: what virtual ranks would do, for machines that are too large for them.

Every rank copies, posts its receives, sends and waits, as in `armillary.comm`'s virtual ranks, with the same prices: eager messages with a
copy on both sides, RTS and CTS before long ones, shared memory inside a node. Where virtual ranks let messages share links as flows, here a
node's NIC serves the other nodes in turn, piece by piece, and receives one piece after the other. With `ports="out"` the NIC sends whole
messages in order and receives without limit, which is the model `loggp` of virtual ranks (on clusters whose nodes are equally far apart).
"""

from __future__ import annotations

import numpy as np

from armillary.engine.compiled import heap, pop, push
from armillary.errors import InputError, unknown
from armillary.kernels import loop

from ..graphs.neighbours import Ints, Ranks
from ..planning.cost import Floats, copying
from ..planning.prices import Prices
from ..planning.schedule import Schedule

#: Kinds of events: a rank begins a step, sends its next message, a NIC is free, a message arrives, long data may leave, and all requests
#: of a rank are known. From `_CLAIM` on, a message enters its NIC; the sender's number is added, because messages of one instant leave in
#: the order of their senders.
_STEP, _SEND, _PORT, _ARRIVE, _CLEAR, _KNOWN, _CLAIM = 0, 1, 2, 3, 4, 5, 6

#: A message gives way to others after a 16th of it, but after no fewer and no more bytes than these, or after a 1024th of what waits for
#: the same node where that is more.
_PIECE_BYTES = (1 << 8, 1 << 16)
#: A node has its turn for a piece of each message that waits for it, but for no more than so many.
_MOST_IN_TURN = 32


def replay(schedule: Schedule, prices: Prices, ports: str = "both") -> Floats:
    """The seconds at which each rank ends one call that all begin at 0."""
    if ports not in ("out", "both"):
        raise unknown("ports", ports, ("out", "both"))
    ranks, count = schedule.problem.ranks, schedule.messages
    if schedule.steps * ranks > 1 << 31:
        raise InputError(f"found {schedule.steps} steps of {ranks} ranks; expected a smaller schedule")
    sends, send_start = _lists(schedule.source, schedule.step, schedule.steps, ranks)
    receives, receive_start = _lists(schedule.destination, schedule.step, schedule.steps, ranks)
    copies = np.zeros(schedule.steps * ranks)
    keys, seconds = copying(schedule, prices)
    copies[(keys % ranks) * schedule.steps + keys // ranks] = seconds
    most = int((np.diff(send_start) + np.diff(receive_start)).max(initial=0))
    # Pieces under way: as many as a NIC sends during the latency, and no more than there are.
    nodes, least = schedule.problem.nodes, _PIECE_BYTES[0] * prices.byte_gap
    pieces = min(nodes * (2.0 + prices.latency / least) if least > 0 else np.inf, 18.0 * count)
    room = 4 * ranks + 2 * nodes + count + int(pieces) + 16
    ends: Floats = np.asarray(
        _replay(
            np.array(prices, np.float64), ports == "both", schedule.steps, schedule.source, schedule.destination, schedule.nbytes,
            schedule.problem.node_of, schedule.problem.nodes, sends, send_start, receives, receive_start, copies,
            heap(room), np.full(count, np.inf), np.zeros(count), np.full(count, -1, np.int64), np.empty(most), np.empty(most),
        )
    )  # fmt: skip
    if not np.isfinite(ends).all():
        raise RuntimeError(f"{schedule.name}: rank {int(np.argmax(~np.isfinite(ends)))} never ends")
    return ends


def _lists(rank: Ranks, step: Ints, steps: int, ranks: int) -> tuple[Ints, Ints]:
    """The messages of each (rank, step) in order, and where they begin."""
    key = rank.astype(np.int64) * steps + step
    order = np.argsort(key, kind="stable")
    return order, np.concatenate(([0], np.cumsum(np.bincount(key, minlength=ranks * steps)))).astype(np.int64)


@loop
def _replay(  # type: ignore[no-untyped-def]
    prices, both, steps, source, destination, nbytes, node, nodes, sends, send_start, receives, receive_start, copies,
    events, arrival, left, queue, times, costs,
):  # fmt: skip
    """Invariants: `arrival[m]` is when message m is known to be there, `left[m]` when a long one has left its sender.

    A waiting rank counts in `missing` the receives and long sends of its step that are not known yet.
    """
    latency, send, receive, gap, byte_gap, copy, eager = prices[0], prices[1], prices[2], prices[3], prices[4], prices[5], prices[6]
    near_latency, near, near_eager, cell, memory = prices[7], prices[8], prices[9], prices[10], prices[11]
    ranks = len(node)
    clock, now_step, cursor = np.zeros(ranks), np.full(ranks, -1, np.int64), np.zeros(ranks, np.int64)
    missing, posted = np.zeros(ranks, np.int64), np.zeros(len(source))
    posted[:] = np.inf
    asked = np.full(len(source), np.inf)
    out_free, in_free, bus_free = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    # What waits at each NIC: one queue, or one for each other node, which take turns piece by piece.
    queues = nodes * nodes if both else nodes
    first, last, backlog = np.full(queues, -1, np.int64), np.full(queues, -1, np.int64), np.zeros(queues, np.int64)
    waits, turn, credit, held = np.zeros(nodes, np.int64), np.arange(nodes), np.zeros(nodes, np.int64), np.zeros(queues, np.int64)
    piece, gone, got = np.zeros(len(source), np.int64), np.zeros(len(source), np.int64), np.zeros(len(source), np.int64)
    # What a queued message stands for: 1 eager, 2 the question of a long one, 3 its data.
    stage = np.zeros(len(source), np.int8)
    ends = np.full(ranks, np.inf)
    waiting = np.zeros(ranks, np.bool_)
    for rank in range(ranks):
        push(events, 0.0, _STEP, rank)
    while True:
        time, kind, what = pop(events)
        if kind < 0:
            return ends
        if kind == _STEP:
            rank, at = what, 0
            while True:
                now_step[rank] += 1
                if now_step[rank] == steps:
                    ends[rank] = clock[rank]
                    break
                at = rank * steps + now_step[rank]
                clock[rank] += copies[at]
                if send_start[at] < send_start[at + 1] or receive_start[at] < receive_start[at + 1]:
                    break
            if now_step[rank] == steps:
                continue
            missing[rank] = receive_start[at + 1] - receive_start[at]
            for i in range(receive_start[at], receive_start[at + 1]):
                m = receives[i]
                posted[m] = clock[rank]
                if arrival[m] < np.inf:
                    missing[rank] -= 1
                elif asked[m] < np.inf:
                    clear = max(asked[m], clock[rank])
                    push(events, clear + (latency if node[source[m]] != node[rank] else near_latency), _CLEAR, m)
            cursor[rank] = send_start[at]
            push(events, clock[rank], _SEND, rank)
        elif kind == _SEND:
            rank = what
            at = rank * steps + now_step[rank]
            if cursor[rank] < send_start[at + 1]:
                m = sends[cursor[rank]]
                cursor[rank] += 1
                n, far = nbytes[m], node[rank] != node[destination[m]]
                long = n > (eager if far else near_eager)
                clock[rank] += (send if far else near) + (0.0 if long else n * copy)
                if long:
                    missing[rank] += 1
                if far:
                    stage[m] = 2 if long else 1
                    # The message enters its NIC when the loop has reached this time.
                    push(events, clock[rank], _CLAIM + rank, m)
                else:
                    if long:
                        asked[m] = clock[rank] + near_latency
                        if posted[m] < np.inf:
                            push(events, max(asked[m], posted[m]) + near_latency, _CLEAR, m)
                    else:
                        arrival[m] = clock[rank] + near_latency
                        _heard(destination[m], posted[m], missing, waiting, events, time)
                push(events, clock[rank], _SEND, rank)
                continue
            waiting[rank] = True
            if missing[rank] == 0:
                push(events, max(time, clock[rank]), _KNOWN, rank)
        elif kind >= _CLAIM:
            m = what
            v, w = node[source[m]], node[destination[m]]
            if both and stage[m] == 2:
                # A question has no bytes, so no data delays it.
                push(events, time + latency, _ARRIVE, m)
                continue
            pair = v * nodes + w if both else v
            queue[m] = -1
            if first[pair] < 0:
                first[pair] = m
            else:
                queue[last[pair]] = m
            last[pair] = m
            backlog[pair] += nbytes[m]
            held[pair] += 1
            waits[v] += 1
            if waits[v] == 1:
                push(events, max(time, out_free[v]), _PORT, v)
        elif kind == _PORT:
            v = what
            pair = v
            if both:
                if credit[v] == 0 or first[v * nodes + turn[v]] < 0:
                    turn[v] = (turn[v] + 1) % nodes
                    while first[v * nodes + turn[v]] < 0:
                        turn[v] = (turn[v] + 1) % nodes
                    credit[v] = min(held[v * nodes + turn[v]], _MOST_IN_TURN)
                pair = v * nodes + turn[v]
                credit[v] -= 1
            m = first[pair]
            n = 0 if stage[m] == 2 else nbytes[m]
            if gone[m] == 0:
                piece[m] = max(min(max(n // 16, _PIECE_BYTES[0]), _PIECE_BYTES[1]), backlog[pair] // 1024) if both else max(n, 1)
            sent = min(piece[m], n - gone[m])
            wire = max(sent - (gone[m] == 0), 0) * byte_gap
            gone[m] += sent
            out_free[v] = time + wire
            if gone[m] == n:
                first[pair] = queue[m]
                backlog[pair] -= nbytes[m]
                held[pair] -= 1
                waits[v] -= 1
                out_free[v] += gap
                if stage[m] == 3:
                    left[m] = time + wire
                elif stage[m] == 2:
                    gone[m] = 0
            elif queue[m] >= 0:
                # The other messages for the same node come before its next piece.
                first[pair] = queue[m]
                queue[last[pair]] = m
                last[pair] = m
                queue[m] = -1
            if waits[v] > 0:
                push(events, out_free[v], _PORT, v)
            push(events, time + latency, _ARRIVE, m)
        elif kind == _ARRIVE:
            m = what
            v = node[destination[m]]
            if stage[m] == 2:
                asked[m] = time
                if posted[m] < np.inf:
                    push(events, max(time, posted[m]) + latency, _CLEAR, m)
                continue
            n = nbytes[m]
            came = min(piece[m], n - got[m])
            wire = max(came - (got[m] == 0), 0) * byte_gap
            got[m] += came
            start = time
            if both:
                start = max(time, in_free[v])
                in_free[v] = start + wire
            if got[m] < n:
                continue
            arrival[m] = start + wire
            if stage[m] == 3:
                left[m] = max(left[m], arrival[m] - latency)
                _heard(source[m], 0.0, missing, waiting, events, time)
            _heard(destination[m], posted[m], missing, waiting, events, time)
        elif kind == _CLEAR:
            m = what
            v = node[source[m]]
            if v != node[destination[m]]:
                stage[m] = 3
                push(events, time, _CLAIM + source[m], m)
            else:
                # Two copies through the memory of the node, the second one cell behind the first.
                n = nbytes[m]
                rate = max(copy, 2.0 * memory)
                begin = max(time, bus_free[v])
                bus_free[v] = begin + 2.0 * n * memory
                end = max(begin + 2.0 * n * memory, time + n * rate)
                arrival[m] = end + near_latency + min(float(n), cell) * copy
                left[m] = end
                _heard(source[m], 0.0, missing, waiting, events, time)
                _heard(destination[m], posted[m], missing, waiting, events, time)
        else:
            # Everything of the step is known: the rank handles it in the order of arrival.
            rank = what
            at = rank * steps + now_step[rank]
            waiting[rank] = False
            used = 0
            for i in range(receive_start[at], receive_start[at + 1]):
                m = receives[i]
                far = node[source[m]] != node[rank]
                long = nbytes[m] > (eager if far else near_eager)
                times[used] = arrival[m]
                costs[used] = (receive if far else near) + (0.0 if long else nbytes[m] * copy)
                used += 1
            for i in range(send_start[at], send_start[at + 1]):
                m = sends[i]
                if nbytes[m] > (eager if node[destination[m]] != node[rank] else near_eager):
                    times[used], costs[used] = left[m], 0.0
                    used += 1
            order = np.argsort(times[:used], kind="mergesort")
            for i in order:
                clock[rank] = max(clock[rank], times[i]) + costs[i]
            push(events, max(time, clock[rank]), _STEP, rank)


@loop
def _heard(rank, posted, missing, waiting, events, time):  # type: ignore[no-untyped-def]
    """Counts one more request of a rank as known, if it has posted it, and lets a rank that waits for no other go on."""
    if posted == np.inf:
        return
    missing[rank] -= 1
    if waiting[rank] and missing[rank] == 0:
        push(events, time, _KNOWN, rank)
