"""Paths of packets, and how full their first ports are: what every routing is made of. All are parts of compiled loops.

A path is a first global channel and, for a detour, a second one, kept with the packet. `follow` leads a packet along its path and gives
each hop the virtual channel of its stage. The order l0 < l1 < g0 < l2 < l2b < g1 < l3 strictly grows along every path, so there is no
cycle.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import part

from .state import (
    DETOUR,
    DST,
    DST_GROUP,
    DST_ROUTER,
    FIRST,
    GLOBALS,
    LATENCY,
    LOCAL_DETOUR,
    LOCALS,
    MIDDLE,
    MINIMAL,
    PEER_ROUTER,
    ROUTER,
    SECOND,
    TAG,
    UNDECIDED,
    USED,
    WAIT,
)

_GAMMA, _A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S33, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(33), np.uint64(11)
#: Streams of random numbers: traffic and routing never share one.
TRAFFIC, ROUTING = 0, 1


@part
def draw(s, stream):  # type: ignore[no-untyped-def]
    """64 random bits of a stream (splitmix64)."""
    z = s.rng[stream] + _GAMMA
    s.rng[stream] = z
    z = (z ^ (z >> _S30)) * _A
    z = (z ^ (z >> _S27)) * _B
    return z ^ (z >> _S31)


@part
def below(s, stream, bound):  # type: ignore[no-untyped-def]
    """A random whole number from 0 to bound − 1, for bounds below 2³¹."""
    return (np.int64(draw(s, stream) >> _S33) * bound) >> 31


@part
def chance(s, stream, threshold):  # type: ignore[no-untyped-def]
    """Whether 53 random bits are below the threshold, which is a probability times 2⁵³."""
    return np.int64(draw(s, stream) >> _S11) < threshold


@part
def queued(s, port):  # type: ignore[no-untyped-def]
    """The queue measure of the UGAL family: flits assigned to a port and not sent, plus credits in use."""
    return np.int64(s.port[port, WAIT] + s.port[port, USED])


@part
def excess(s, port):  # type: ignore[no-untyped-def]
    """PIAR's: credits count only beyond what a link that is busy without a queue keeps in use."""
    return np.int64(s.port[port, WAIT] + max(0, s.port[port, USED] - 2 * s.port[port, LATENCY]))


@part
def local_port(s, r, target):  # type: ignore[no-untyped-def]
    """The port of router r to another router of its group; of parallel ones the emptiest."""
    i = s.place[target]
    port = s.local[r, i, 0]
    for other in range(port + 1, port + s.local[r, i, 1]):
        if queued(s, other) < queued(s, port):
            port = other
    return port


@part
def first_port(s, r, channel):  # type: ignore[no-untyped-def]
    """The port by which a packet in router r gets to a global channel of its group: that channel, or the way to its owner."""
    owner = s.port[channel, ROUTER]
    return np.int64(channel) if owner == r else np.int64(local_port(s, r, owner))


@part
def channel_count(s, source, target):  # type: ignore[no-untyped-def]
    """How many working channels lead from one group to another."""
    pair = source * (len(s.member_start) - 1) + target
    return s.channel_start[pair + 1] - s.channel_start[pair]


@part
def channel_at(s, source, target, i):  # type: ignore[no-untyped-def]
    """Channel i of those that lead from one group to another."""
    return np.int64(s.channels[s.channel_start[source * (len(s.member_start) - 1) + target] + i])


@part
def any_channel(s, source, target):  # type: ignore[no-untyped-def]
    """A random working channel from one group to another, or −1."""
    count = channel_count(s, source, target)
    if count == 0:
        return np.int64(-1)
    return channel_at(s, source, target, below(s, ROUTING, np.int64(count)) if count > 1 else 0)


@part
def nearest_channel(s, source, target, r):  # type: ignore[no-untyped-def]
    """A working channel from one group to another, of router r if it has one; else a random one, or −1."""
    count = channel_count(s, source, target)
    for i in range(count):
        channel = channel_at(s, source, target, i)
        if s.port[channel, ROUTER] == r:
            return channel
    return any_channel(s, source, target)


@part
def minimal_hops(s, r, channel, destination):  # type: ignore[no-untyped-def]
    """Hops from router r over one channel of its group to a router of the group at its end."""
    return np.int64(s.port[channel, ROUTER] != r) + 1 + np.int64(s.port[channel, PEER_ROUTER] != destination)


@part
def detour_hops(s, r, first, second, destination):  # type: ignore[no-untyped-def]
    """Hops from router r over a channel of its group, and a second one of the group at its end, to a router of the destination's."""
    hops = np.int64(s.port[first, ROUTER] != r) + 1 + np.int64(s.port[first, PEER_ROUTER] != s.port[second, ROUTER])
    return hops + 1 + np.int64(s.port[second, PEER_ROUTER] != destination)


@part
def random_detour(s, r, p):  # type: ignore[no-untyped-def]
    """Two channels by way of a random other group: (first, second), or (−1, −1) if no group has both."""
    source, target = np.int64(s.group[r]), np.int64(s.packet[p, DST_GROUP])
    groups = len(s.member_start) - 1
    if groups > 2:
        start = below(s, ROUTING, groups)
        # The group that was drawn; where it will not do, another one is drawn, and after some failures the next one that will do is taken.
        for attempt in range(groups + 8):
            middle = start if attempt == 0 else below(s, ROUTING, groups) if attempt < 8 else (start + attempt) % groups
            if middle != source and middle != target:
                first = any_channel(s, source, middle)
                second = any_channel(s, middle, target)
                if first >= 0 and second >= 0:
                    return first, second
    return np.int64(-1), np.int64(-1)


@part
def undecided(s, p):  # type: ignore[no-untyped-def]
    """Whether the packet is at its source router and has no path yet."""
    return s.packet[p, TAG] == UNDECIDED


@part
def leaves_group(s, r, p):  # type: ignore[no-untyped-def]
    """Whether the packet is for another group than router r's."""
    return s.group[r] != s.packet[p, DST_GROUP]


@part
def may_reconsider(s, r, p):  # type: ignore[no-untyped-def]
    """Whether the packet took one local hop towards its minimal channel, and has arrived at the router that owns it."""
    here = s.packet[p, TAG] == MINIMAL and s.packet[p, GLOBALS] == 0 and s.packet[p, LOCALS] == 1
    return here and s.group[r] != s.packet[p, DST_GROUP]


@part
def go_minimal(s, p, channel):  # type: ignore[no-untyped-def]
    """Puts the packet on its minimal path, over this channel (−1 inside a group)."""
    s.packet[p, FIRST] = channel
    s.packet[p, TAG] = MINIMAL


@part
def go_detour(s, p, first, second):  # type: ignore[no-untyped-def]
    """Puts the packet on the path over these two channels."""
    s.packet[p, FIRST] = first
    s.packet[p, SECOND] = second
    s.packet[p, TAG] = DETOUR


@part
def go_around(s, p, middle):  # type: ignore[no-untyped-def]
    """Puts the packet on the path by way of another router of its group."""
    s.packet[p, MIDDLE] = middle
    s.packet[p, TAG] = LOCAL_DETOUR


@part
def settled(s, r, p):  # type: ignore[no-untyped-def]
    """The cases without a choice: inside a group, and where no minimal channel works. Gives (whether it was one, a minimal channel)."""
    if not leaves_group(s, r, p):
        go_minimal(s, p, -1)
        return True, np.int64(-1)
    channel = any_channel(s, np.int64(s.group[r]), np.int64(s.packet[p, DST_GROUP]))
    if channel < 0:
        first, second = random_detour(s, r, p)
        go_detour(s, p, first, second)
        return True, channel
    return False, channel


@part
def follow(s, r, p):  # type: ignore[no-untyped-def]
    """(port, virtual channel, tag) of the packet's next hop from router r on its path."""
    crossed = s.packet[p, GLOBALS]
    hop = min(s.packet[p, LOCALS], 1)
    local_channel = hop if crossed == 0 else 2 + hop if crossed == 1 else 4
    tag = s.packet[p, TAG]
    middle = s.packet[p, MIDDLE]
    if middle >= 0 and s.group[middle] == s.group[r]:
        if middle != r:
            return np.int64(local_port(s, r, middle)), local_channel, tag
        s.packet[p, MIDDLE] = -1
    if s.group[r] == s.packet[p, DST_GROUP]:
        if r == s.packet[p, DST_ROUTER]:
            return np.int64(s.node_port[s.packet[p, DST]]), 0, tag
        return np.int64(local_port(s, r, s.packet[p, DST_ROUTER])), local_channel, tag
    channel = s.packet[p, FIRST] if crossed == 0 else s.packet[p, SECOND]
    if s.port[channel, ROUTER] == r:
        return np.int64(channel), min(crossed, 1), tag
    return np.int64(local_port(s, r, s.port[channel, ROUTER])), local_channel, tag
