"""Where packets come from: random patterns, drawn for every node in every cycle, or messages that wait for others.

The destinations are drawn from the stream of the traffic alone, also for packets that a full source queue drops, so every routing meets the
same traffic.
"""

from __future__ import annotations

from armillary.kernels import loop, part

from .paths import TRAFFIC, below, chance
from .state import (
    ALL_OFFERED,
    AT,
    BACKLOG,
    CHANNELS,
    COUNTED,
    CREATED,
    CYCLE,
    CYCLES,
    DROPPED,
    DST,
    DST_GROUP,
    DST_ROUTER,
    ENDED,
    FIRST,
    FREE,
    FREE_COUNT,
    FRESH,
    GLOBALS,
    HOPS,
    INJECTED,
    LOCALS,
    MESSAGE,
    MESSAGES_LEFT,
    MIDDLE,
    NEXT,
    NEXT_MESSAGE,
    OFFERED,
    OUT,
    PAUSE,
    PEER,
    PREDECESSORS,
    QUEUE_FLITS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    RELEASED,
    ROUTER,
    SECOND,
    SIZE,
    SOURCE,
    TAG,
    TARGET,
    TO_ARRIVE,
    TO_SEND,
    UNDECIDED,
    WARM_UP,
)

#: Kinds of traffic.
UNIFORM, ADVERSARIAL, TABLE, HOTSPOT, MIXED, PHASES, BURSTS, MESSAGES = range(8)
#: Entries of `traffic`: the kind, chances times 2⁵³ (a packet of a node in a cycle; the share of uniform or of hot packets; a burst
#: ends; a burst begins), the distance of groups, the cycles of a phase, the flits of a packet.
PATTERN, LOAD, SHARE, BURST_ENDS, BURST_BEGINS, DISTANCE, PHASE, PACKET_FLITS, TRAFFIC_NUMBERS = range(9)
# Columns of `source_at`: the ring's first packet and count (messages: the first and last one), and whether a burst is on and to which
# group.
HEAD, COUNT, ON, GROUP = range(4)


@loop
def generate(s):  # type: ignore[no-untyped-def]
    """The packets that nodes create in this cycle."""
    n, traffic = s.n, s.traffic
    t, kind = n[CYCLE], traffic[PATTERN]
    if kind == MESSAGES:
        while s.heap[0] > 0 and s.heap[1] >> 32 <= t:
            _ready(s, _pop(s.heap) & 0xFFFFFFFF, t)
        return
    ring = s.source.shape[1]
    for node in range(len(s.node_port)):
        if kind == BURSTS:
            if s.source_at[node, ON] == 0:
                if not chance(s, TRAFFIC, traffic[BURST_BEGINS]):
                    continue
                s.source_at[node, ON] = 1
                s.source_at[node, GROUP] = below(s, TRAFFIC, len(s.member_start) - 1)
            elif chance(s, TRAFFIC, traffic[BURST_ENDS]):
                s.source_at[node, ON] = 0
        if not chance(s, TRAFFIC, traffic[LOAD]):
            continue
        target = _target(s, node, t)
        n[ALL_OFFERED] += 1
        n[OFFERED] += n[WARM_UP] <= t < n[CYCLES]
        count = s.source_at[node, COUNT]
        if count == ring:
            n[DROPPED] += 1
            continue
        n[COUNTED] += n[WARM_UP] <= t < n[CYCLES]
        n[BACKLOG] += 1
        at = s.source_at[node, HEAD] + count
        if at >= ring:
            at -= ring
        s.source[node, at, 0] = t
        s.source[node, at, 1] = target
        s.source_at[node, COUNT] = count + 1
        ip = s.node_port[node]
        if s.queue[ip * CHANNELS, QUEUE_HEAD] < 0:
            refill(s, ip)


@part
def _target(s, node, t):  # type: ignore[no-untyped-def]
    traffic = s.traffic
    kind = traffic[PATTERN]
    nodes = len(s.node_port)
    if kind == TABLE:
        return s.table[node]
    distance = 0
    if kind == ADVERSARIAL:
        distance = traffic[DISTANCE]
    elif kind == MIXED:
        distance = 0 if chance(s, TRAFFIC, traffic[SHARE]) else traffic[DISTANCE]
    elif kind == PHASES:
        distance = t // traffic[PHASE] % 2 * traffic[DISTANCE]
    group = s.group[s.port[s.node_port[node], ROUTER]]
    if kind == BURSTS:
        group = s.source_at[node, GROUP]
    if distance or kind == BURSTS:
        group = (group + distance) % (len(s.member_start) - 1)
        first = s.node_start[group]
        many = s.node_start[group + 1] - first
        if many > 0:
            target = s.group_nodes[first + below(s, TRAFFIC, many)]
            if target != node:
                return target
    if kind == HOTSPOT and chance(s, TRAFFIC, traffic[SHARE]):
        target = s.table[below(s, TRAFFIC, len(s.table))]
        if target != node:
            return target
    other = below(s, TRAFFIC, nodes - 1)
    return other + (other >= node)


@part
def refill(s, ip):  # type: ignore[no-untyped-def]
    """Gives the input of a node's port its next packet, if the node has one."""
    n, node = s.n, s.port[ip, PEER]
    if s.traffic[PATTERN] == MESSAGES:
        m = s.source_at[node, HEAD]
        if m < 0:
            return
        size = min(s.traffic[PACKET_FLITS], s.message[m, TO_SEND])
        s.message[m, TO_SEND] -= size
        # All packets of a message are created with it, and wait in the source queue.
        _new_packet(s, ip, s.message[m, TARGET], s.message[m, RELEASED], size, m)
        n[COUNTED] += n[WARM_UP] <= n[CYCLE] < n[CYCLES]
        if s.message[m, TO_SEND] == 0:
            s.source_at[node, HEAD] = s.message[m, NEXT_MESSAGE]
        return
    if s.source_at[node, COUNT] == 0:
        return
    at = s.source_at[node, HEAD]
    _new_packet(s, ip, s.source[node, at, 1], s.source[node, at, 0], s.traffic[PACKET_FLITS], -1)
    n[BACKLOG] -= 1
    s.source_at[node, COUNT] -= 1
    s.source_at[node, HEAD] = at + 1 if at + 1 < s.source.shape[1] else 0


@part
def _new_packet(s, ip, target, created, size, message):  # type: ignore[no-untyped-def]
    n = s.n
    p = n[FREE]
    row = s.packet[p]
    n[FREE] = row[NEXT]
    n[FREE_COUNT] -= 1
    n[INJECTED] += 1
    router = s.port[s.node_port[target], ROUTER]
    q = ip * CHANNELS
    row[NEXT], row[DST], row[DST_ROUTER], row[DST_GROUP] = -1, target, router, s.group[router]
    row[CREATED], row[SIZE], row[GLOBALS], row[LOCALS] = created, size, 0, 0
    row[FIRST], row[SECOND], row[HOPS], row[TAG] = -1, -1, 0, UNDECIDED
    row[AT], row[OUT], row[MESSAGE], row[MIDDLE] = q, n[CYCLE], message, -1
    s.queue[q, QUEUE_HEAD] = p
    s.queue[q, QUEUE_TAIL] = p
    s.queue[q, QUEUE_FLITS] += size
    s.fresh[n[FRESH]] = q
    n[FRESH] += 1


@part
def arrived_message(s, m, size, t):  # type: ignore[no-untyped-def]
    """Counts flits of a message; with its last one, the messages that waited for it alone become ready after their pauses."""
    s.message[m, TO_ARRIVE] -= size
    if s.message[m, TO_ARRIVE] == 0:
        _ended(s, m, t, t + 1)


@part
def _ended(s, m, t, following):  # type: ignore[no-untyped-def]
    s.message[m, ENDED] = t
    s.n[MESSAGES_LEFT] -= 1
    for i in range(s.successor_start[m], s.successor_start[m + 1]):
        other = s.successors[i]
        s.message[other, PREDECESSORS] -= 1
        if s.message[other, PREDECESSORS] == 0:
            _push(s.heap, (following + s.message[other, PAUSE]) << 32 | other)


@part
def _ready(s, m, t):  # type: ignore[no-untyped-def]
    """Puts a message into its node's queue; one without flits has arrived."""
    message = s.message
    message[m, RELEASED] = t
    if message[m, TO_SEND] == 0:
        _ended(s, m, t, t)
        return
    message[m, NEXT_MESSAGE] = -1
    node = message[m, SOURCE]
    if s.source_at[node, HEAD] < 0:
        s.source_at[node, HEAD] = m
    else:
        message[s.source_at[node, COUNT], NEXT_MESSAGE] = m
    s.source_at[node, COUNT] = m
    ip = s.node_port[node]
    if s.queue[ip * CHANNELS, QUEUE_HEAD] < 0:
        refill(s, ip)


@loop
def start_messages(s):  # type: ignore[no-untyped-def]
    """Puts the messages that wait for no other into the heap, at their times."""
    for m in range(len(s.message)):
        if s.message[m, PREDECESSORS] == 0:
            _push(s.heap, s.message[m, PAUSE] << 32 | m)


# A binary heap of whole numbers, time · 2³² + message, so that equal times keep the order of messages; entry 0 is the count.
@loop
def _push(heap, key):  # type: ignore[no-untyped-def]
    heap[0] += 1
    i = heap[0]
    while i > 1 and heap[i >> 1] > key:
        heap[i] = heap[i >> 1]
        i >>= 1
    heap[i] = key


@loop
def _pop(heap):  # type: ignore[no-untyped-def]
    top, last, count = heap[1], heap[heap[0]], heap[0] - 1
    heap[0] = count
    i = 1
    while 2 * i <= count:
        child = 2 * i
        if child < count and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = last
    return top
