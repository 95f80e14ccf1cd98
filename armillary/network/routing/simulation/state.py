"""The state of a simulated network as flat arrays, and the names of their columns.

A port is one row of `port`, an input queue of one virtual channel one row of `queue`, and a packet in the network one row of `packet`.
Packets that wait in a source queue are two numbers in `source`. Rows of 64 bytes keep what one step reads in one cache line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from ..fabric.network import Network
from ..fabric.tables import GLOBAL, NODE

Array = npt.NDArray[Any]

#: Virtual channels of a port by stage. Local ports: the first and second hop in the source group, the first and second after one global
#: hop, and the hop after two. Global ports: the first and the second global hop.
CHANNELS = 5
LOCAL_STAGES, GLOBAL_STAGES = ("l0", "l1", "l2", "l2b", "l3"), ("g0", "g1")

# Columns of `port`: what it is (PEER of a node's port is the node, PEER_GROUP of a failed one is −1), …
ROUTER, PEER, LATENCY, KIND, PEER_ROUTER, PEER_GROUP = range(6)
# … flits assigned to it that are not sent, credits of sent flits, its output queue, and until when link (cycle) and crossbar (half-cycle)
# are busy; which virtual channels have requests, and whose turn it is.
WAIT, USED, OUT_HEAD, OUT_TAIL, OUT_FLITS, LINK_FREE, OUT_FREE, IN_FREE, MASK, TURN = range(6, 16)
#: The bit of MASK that says that the port is in the list of asking ports.
LISTED = 1 << 30

# Columns of `queue`: packets in order, flits, the next request for the same output, the half-cycle from which it may be granted.
QUEUE_HEAD, QUEUE_TAIL, QUEUE_FLITS, NEXT_REQUEST, READY = range(5)

# Columns of `packet`. OUT is port · CHANNELS + channel of the output that it asks for, and before it has one the cycle of its arrival.
# AT is the input queue where it is or to which it travels.
NEXT, DST, DST_ROUTER, DST_GROUP, CREATED, SIZE, GLOBALS, LOCALS, FIRST, SECOND, HOPS, OUT, TAG, AT, MESSAGE, MIDDLE = range(16)
#: TAG: not decided yet; on its minimal path; on a path by way of another group; on a path by way of another router of its group.
UNDECIDED, MINIMAL, DETOUR, LOCAL_DETOUR = -1, 0, 1, 2

# Single numbers.
(
    CYCLE, WARM_UP, CYCLES, FREE, FREE_COUNT, FRESH, BUSY, ASKING, OUT_ROOM, UNIT, DECISION, OFFERED, DROPPED, INJECTED, ARRIVED,
    COUNTED, COUNTED_ARRIVED, FLITS, LATENCY_SUM, HOPS_SUM, ALL_HOPS, OLDEST, STATUS_CYCLES, LOCAL_CYCLES, MODE, MESSAGES_LEFT, BACKLOG,
    ALL_FLITS, DETOURED, ALL_OFFERED, MOST_HOPS, ALL_LATENCY, ALL_DETOURED, NUMBERS,
) = range(34)  # fmt: skip

# Columns of `message`.
SOURCE, TARGET, TO_SEND, TO_ARRIVE, PREDECESSORS, PAUSE, RELEASED, ENDED, NEXT_MESSAGE = range(9)

#: Source queues hold this many packets per node.
SOURCE_PACKETS = 10_000
MAX_BYTES = 1 << 30


class State(NamedTuple):
    """All arrays of a running simulation; the fields stand in the order in which a cycle uses them."""

    n: Array
    settings: Array
    own: Array
    real: Array
    rng: Array
    port: Array
    queue: Array
    credit: Array
    request: Array
    packet: Array
    arriving: Array
    back: Array
    back_count: Array
    fresh: Array
    busy: Array
    asking: Array
    sent: Array
    histogram: Array
    status: Array
    depend: Array
    group: Array
    place: Array
    local: Array
    first: Array
    first_global: Array
    member_start: Array
    members: Array
    node_start: Array
    group_nodes: Array
    node_port: Array
    channel_start: Array
    channels: Array
    traffic: Array
    table: Array
    source: Array
    source_at: Array
    message: Array
    successor_start: Array
    successors: Array
    heap: Array


def buffer_flits(net: Network, flits: int = 1) -> int:
    """Flits per (port, virtual channel) that keep the longest link busy: the next power of two, 32 at least."""
    longest = int(net.latency.max(initial=1))
    return max(32, 1 << (2 * longest + 2 * flits - 1).bit_length())


def new_state(
    net: Network, *, seeds: tuple[int, int], cycles: int, warm_up: int, flits: int, buffer: int, settings: Array, own: int, real: int,
    traffic: Array, table: Array, decision_cycles: int = 0, status_cycles: int = 0, messages: tuple[Array, Array, Array] | None = None,
    source_packets: int = 1, record: bool = False, max_bytes: int = MAX_BYTES,
) -> State:  # fmt: skip
    """An empty network. `seeds` are those of traffic and routing; `record` keeps which channel waited for which."""
    t = net.tables
    ports, nodes, lines = len(t.router), net.nodes, int(net.latency.max(initial=1)) + 2
    cap = min(SOURCE_PACKETS, source_packets)
    links = np.count_nonzero(t.kind != NODE)
    packets = 4 * ports + 2 * nodes + 1024
    port = np.zeros((ports, 16), np.int32)
    port[:, ROUTER], port[:, PEER], port[:, LATENCY], port[:, KIND] = t.router, t.peer, t.latency, t.kind
    port[:, PEER_ROUTER] = t.router[t.peer]
    port[:, PEER_GROUP] = t.group[t.router[t.peer]]
    port[t.node_port, PEER] = np.arange(nodes)
    port[t.dead, PEER_GROUP] = -1
    port[:, [OUT_HEAD, OUT_TAIL]] = -1
    needed = 2 * 4 * lines * links + 64 * (ports + packets) + ports * CHANNELS * 48 + 8 * nodes * cap + 8 * (own + real)
    needed += (ports * CHANNELS) ** 2 if record else 0
    if needed > max_bytes:
        raise InputError(f"the simulation needs {needed / 2**20:,.0f} MiB; max_bytes allows {max_bytes / 2**20:,.0f} MiB")
    credit = np.where((t.kind == NODE)[:, None], 1 << 30, buffer).astype(np.int32) * np.ones(CHANNELS, np.int32)
    queue = np.zeros((ports * CHANNELS, 8), np.int32)
    queue[:, [QUEUE_HEAD, QUEUE_TAIL, NEXT_REQUEST]] = -1
    packet = np.full((packets, 16), -1, np.int32)
    packet[:-1, NEXT] = np.arange(1, packets)
    n = np.zeros(NUMBERS, np.int64)
    n[[WARM_UP, CYCLES, FREE_COUNT, OUT_ROOM, UNIT, DECISION]] = warm_up, cycles, packets, max(8, 2 * flits), flits, decision_cycles
    n[STATUS_CYCLES] = status_cycles
    local = net.latency[~net.is_global]
    n[LOCAL_CYCLES] = int(local.max(initial=1))
    places = np.zeros((0, 9), np.int64) if messages is None else messages[0].copy()
    starts, successors = (np.zeros(1, np.int64), np.zeros(0, np.int64)) if messages is None else messages[1:]
    n[MESSAGES_LEFT] = len(places)
    source_at = np.zeros((nodes, 4), np.int32)
    if messages is not None:
        source_at[:, :2] = -1
    sides = (ports * CHANNELS,) * 2 if record else (0, 0)
    return State(
        n, settings.astype(np.int64), np.zeros(own, np.int64), np.zeros(real), np.array(seeds, np.uint64), port, queue,
        credit.reshape(-1).copy(), np.full((ports * CHANNELS, 2), -1, np.int32), packet, np.full((lines, 2), -1, np.int32),
        np.zeros((lines, 2 * links), np.int32), np.zeros(lines, np.int64), np.zeros(ports * CHANNELS, np.int32), np.zeros(ports, np.int32),
        np.zeros(ports, np.int32), np.zeros(ports, np.int64), np.zeros(min(3 * cycles, 2_000_000) + 2, np.int64),
        np.zeros((ports, 2), np.int32), np.zeros(sides, np.uint8), t.group, t.place, t.local, t.first, t.first_global, t.member_start,
        t.members, t.node_start, t.group_nodes, t.node_port, t.channel_start, t.channels, traffic.astype(np.int64),
        table.astype(np.int32), np.empty((nodes, cap, 2), np.int32), source_at, places, starts.astype(np.int64),
        successors.astype(np.int64), np.zeros(len(places) + 1, np.int64),
    )  # fmt: skip


def with_more_packets(state: State) -> State:
    """The same state with twice the rows for packets; nothing else changes."""
    old = len(state.packet)
    packet = np.full((2 * old, 16), -1, np.int32)
    packet[:old] = state.packet
    packet[old:-1, NEXT] = np.arange(old + 1, 2 * old)
    packet[-1, NEXT] = state.n[FREE]
    state.n[FREE] = old
    state.n[FREE_COUNT] += old
    return state._replace(packet=packet)


def occupancy(state: State) -> Array:
    """By (port, channel) of an output: credits left, credits on the way back, flits queued, on the wire and in the buffer behind it."""
    size, out = state.packet[:, SIZE], state.packet[:, OUT]
    total = state.credit.astype(np.int64).copy()
    for slot in range(len(state.back)):
        events = state.back[slot, : state.back_count[slot]]
        np.add.at(total, events >> 6, events & 63)
    inside = np.zeros(len(total), np.int64)
    for q in np.flatnonzero(state.queue[:, QUEUE_HEAD] >= 0).tolist():
        p, kind = int(state.queue[q, QUEUE_HEAD]), state.port[q // CHANNELS, KIND]
        if kind == NODE:
            continue
        behind = int(state.port[q // CHANNELS, PEER]) * CHANNELS + q % CHANNELS
        while p >= 0:
            inside[behind] += size[p]
            p = int(state.packet[p, NEXT])
    for head in (*state.port[:, OUT_HEAD].tolist(), *state.arriving[:, 0].tolist()):
        p = head
        while p >= 0:
            if state.port[out[p] // CHANNELS, KIND] != NODE:
                inside[out[p]] += size[p]
            p = int(state.packet[p, NEXT])
    return np.stack([total, inside])


__all__ = ["GLOBAL", "State", "buffer_flits", "new_state", "occupancy", "with_more_packets"]
