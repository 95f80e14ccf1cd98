"""One cycle of the network, in steps: links send, credits and packets arrive, and crossbars move packets to output queues.

A router is input-buffered with virtual cut-through. The packet at the head of a virtual channel is given an output and a virtual channel
there, and waits in that output's line until a pass of the crossbar grants it: then it takes credits for the buffer behind the link and
moves to the output queue, which the link empties by one flit per cycle. The crossbar passes twice per cycle (speed-up 2). Whoever was
served goes to the end of the line, virtual channels take turns, and outputs choose in an order that changes from pass to pass.
"""

from __future__ import annotations

from armillary.kernels import loop, part

from ..fabric.tables import GLOBAL, NODE
from .sources import arrived_message, refill
from .state import (
    ALL_DETOURED,
    ALL_FLITS,
    ALL_HOPS,
    ALL_LATENCY,
    ARRIVED,
    ASKING,
    AT,
    BUSY,
    CHANNELS,
    COUNTED_ARRIVED,
    CREATED,
    CYCLE,
    CYCLES,
    DECISION,
    DETOUR,
    DETOURED,
    DST,
    FLITS,
    FREE,
    FREE_COUNT,
    FRESH,
    GLOBALS,
    HOPS,
    HOPS_SUM,
    IN_FREE,
    KIND,
    LATENCY,
    LATENCY_SUM,
    LINK_FREE,
    LISTED,
    LOCALS,
    MASK,
    MESSAGE,
    MOST_HOPS,
    NEXT,
    NEXT_REQUEST,
    OLDEST,
    OUT,
    OUT_FLITS,
    OUT_FREE,
    OUT_HEAD,
    OUT_ROOM,
    OUT_TAIL,
    PEER,
    QUEUE_FLITS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    READY,
    SIZE,
    TAG,
    TURN,
    USED,
    WAIT,
    WARM_UP,
)


@loop
def send(s):  # type: ignore[no-untyped-def]
    """Every free link takes the next packet of its output queue. Those for a node are counted at once, with the cycle of their last
    flit."""
    n, port, packet = s.n, s.port, s.packet
    t, lines = n[CYCLE], len(s.arriving)
    kept = 0
    for i in range(n[BUSY]):
        o = s.busy[i]
        if port[o, LINK_FREE] <= t:
            p = port[o, OUT_HEAD]
            size = packet[p, SIZE]
            following = packet[p, NEXT]
            port[o, OUT_HEAD] = following
            port[o, OUT_FLITS] -= size
            port[o, WAIT] -= size
            port[o, LINK_FREE] = t + size
            if n[WARM_UP] <= t < n[CYCLES]:
                s.sent[o] += size
            if port[o, KIND] == NODE:
                _eject(s, p, t + size - 1)
            else:
                port[o, USED] += size
                packet[p, NEXT] = -1
                slot = (t + port[o, LATENCY]) % lines
                if s.arriving[slot, 0] < 0:
                    s.arriving[slot, 0] = p
                else:
                    packet[s.arriving[slot, 1], NEXT] = p
                s.arriving[slot, 1] = p
            if following < 0:
                port[o, OUT_TAIL] = -1
                continue
        s.busy[kept] = o
        kept += 1
    n[BUSY] = kept


@part
def _eject(s, p, t):  # type: ignore[no-untyped-def]
    n, packet = s.n, s.packet
    n[ARRIVED] += 1
    n[ALL_FLITS] += packet[p, SIZE]
    if n[WARM_UP] <= t < n[CYCLES]:
        n[FLITS] += packet[p, SIZE]
    n[ALL_DETOURED] += packet[p, TAG] == DETOUR
    n[ALL_LATENCY] += t - packet[p, CREATED]
    n[MOST_HOPS] = max(n[MOST_HOPS], packet[p, HOPS])
    created = packet[p, CREATED]
    if n[WARM_UP] <= created < n[CYCLES]:
        late = t - created
        n[COUNTED_ARRIVED] += 1
        n[LATENCY_SUM] += late
        n[HOPS_SUM] += packet[p, HOPS]
        n[DETOURED] += packet[p, TAG] == DETOUR
        s.histogram[min(late, len(s.histogram) - 1)] += 1
    n[OLDEST] = max(n[OLDEST], t - created)
    if packet[p, MESSAGE] >= 0:
        arrived_message(s, packet[p, MESSAGE], packet[p, SIZE], t)
    packet[p, NEXT] = n[FREE]
    n[FREE] = p
    n[FREE_COUNT] += 1


@loop
def arrive(s):  # type: ignore[no-untyped-def]
    """Credits come back, and packets join the queues at the ends of their links."""
    n, port, packet, queue = s.n, s.port, s.packet, s.queue
    slot = n[CYCLE] % len(s.arriving)
    for i in range(s.back_count[slot]):
        event = s.back[slot, i]
        c, size = event >> 6, event & 63
        s.credit[c] += size
        port[c // CHANNELS, USED] -= size
    s.back_count[slot] = 0
    p = s.arriving[slot, 0]
    s.arriving[slot, 0] = -1
    while p >= 0:
        following = packet[p, NEXT]
        packet[p, NEXT] = -1
        q = packet[p, AT]
        packet[p, OUT] = n[CYCLE]
        packet[p, HOPS] += 1
        n[ALL_HOPS] += 1
        if port[q // CHANNELS, KIND] == GLOBAL:
            packet[p, GLOBALS] += 1
            packet[p, LOCALS] = 0
        else:
            packet[p, LOCALS] += 1
        queue[q, QUEUE_FLITS] += packet[p, SIZE]
        if queue[q, QUEUE_HEAD] < 0:
            queue[q, QUEUE_HEAD] = p
            s.fresh[n[FRESH]] = q
            n[FRESH] += 1
        else:
            packet[queue[q, QUEUE_TAIL], NEXT] = p
        queue[q, QUEUE_TAIL] = p
        p = following


@part
def ask(s, q, p, o, channel, tag):  # type: ignore[no-untyped-def]
    """Puts the packet at the head of queue q into the line for a virtual channel of output o."""
    n, port = s.n, s.port
    c = o * CHANNELS + channel
    # A longer decision is a stage of a pipeline: it counts from the arrival, also while others are in front.
    ready = 2 * (s.packet[p, OUT] + n[DECISION])
    s.packet[p, OUT] = c
    s.packet[p, TAG] = tag
    port[o, WAIT] += s.packet[p, SIZE]
    s.queue[q, NEXT_REQUEST] = -1
    s.queue[q, READY] = ready
    if s.request[c, 0] < 0:
        s.request[c, 0] = q
        if port[o, MASK] & LISTED == 0:
            s.asking[n[ASKING]] = o
            n[ASKING] += 1
        port[o, MASK] |= LISTED | (1 << channel)
    else:
        s.queue[s.request[c, 1], NEXT_REQUEST] = q
    s.request[c, 1] = q
    if len(s.depend) and port[q // CHANNELS, KIND] != NODE and port[o, KIND] != NODE:
        s.depend[port[q // CHANNELS, PEER] * CHANNELS + q % CHANNELS, c] = 1


@loop
def allocate(s, half):  # type: ignore[no-untyped-def]
    """One pass of all crossbars: every output takes at most one packet, and every input gives at most one."""
    n, port = s.n, s.port
    count = n[ASKING]
    if count == 0:
        return
    start = half % count
    backwards = (half * 40503 >> 7) & 1 == 1
    for i in range(count):
        at = start - i if backwards else start + i
        if at < 0:
            at += count
        elif at >= count:
            at -= count
        o = s.asking[at]
        if port[o, OUT_FREE] <= half and port[o, OUT_FLITS] < n[OUT_ROOM]:
            channel = port[o, TURN]
            for _ in range(CHANNELS):
                if port[o, MASK] >> channel & 1 and _grant(s, o, channel, half):
                    break
                channel = channel + 1 if channel + 1 < CHANNELS else 0
    kept = 0
    for i in range(count):
        o = s.asking[i]
        if port[o, MASK] != LISTED:
            s.asking[kept] = o
            kept += 1
        else:
            port[o, MASK] = 0
    n[ASKING] = kept


@part
def _grant(s, o, channel, half):  # type: ignore[no-untyped-def]
    """Moves the first packet in line whose input is free; nobody overtakes one that waits for credits."""
    n, port, packet, queue = s.n, s.port, s.packet, s.queue
    c = o * CHANNELS + channel
    before, q = -1, s.request[c, 0]
    while q >= 0:
        p = queue[q, QUEUE_HEAD]
        size = packet[p, SIZE]
        if s.credit[c] < size:
            return False
        ip = q // CHANNELS
        if port[ip, IN_FREE] <= half and queue[q, READY] <= half:
            break
        before, q = q, queue[q, NEXT_REQUEST]
    if q < 0:
        return False
    following = queue[q, NEXT_REQUEST]
    if before < 0:
        s.request[c, 0] = following
        if following < 0:
            port[o, MASK] &= ~(1 << channel)
    else:
        queue[before, NEXT_REQUEST] = following
    if following < 0:
        s.request[c, 1] = before
    if port[o, KIND] != NODE:
        s.credit[c] -= size
        packet[p, AT] = port[o, PEER] * CHANNELS + channel
    port[o, OUT_FREE] = half + size
    port[o, TURN] = channel + 1 if channel + 1 < CHANNELS else 0
    after = packet[p, NEXT]
    packet[p, NEXT] = -1
    if port[o, OUT_HEAD] < 0:
        port[o, OUT_HEAD] = p
        s.busy[n[BUSY]] = o
        n[BUSY] += 1
    else:
        packet[port[o, OUT_TAIL], NEXT] = p
    port[o, OUT_TAIL] = p
    port[o, OUT_FLITS] += size
    _leave(s, q, ip, after, size, half)
    return True


@part
def _leave(s, q, ip, after, size, half):  # type: ignore[no-untyped-def]
    n, port, queue = s.n, s.port, s.queue
    queue[q, QUEUE_HEAD] = after
    queue[q, QUEUE_FLITS] -= size
    if port[ip, KIND] == NODE:
        # The link of a node carries one flit per cycle.
        port[ip, IN_FREE] = half + 2 * size
        refill(s, ip)
        return
    port[ip, IN_FREE] = half + size
    slot = (n[CYCLE] + port[ip, LATENCY]) % len(s.back)
    s.back[slot, s.back_count[slot]] = (port[ip, PEER] * CHANNELS + q % CHANNELS) << 6 | size
    s.back_count[slot] += 1
    if after >= 0:
        s.fresh[n[FRESH]] = q
        n[FRESH] += 1


__all__ = ["DST", "allocate", "arrive", "ask", "send"]
