"""What the simulator looks up: ports of routers, the local port to each router of a group, and the channels between each pair of groups.

Ports are numbered router by router: first those of its nodes, then those to other routers of its group, then global ones. A port is an
input and an output. Port numbers, not links, are what the simulation handles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .network import Network

Ints32 = npt.NDArray[np.int32]
NODE, LOCAL, GLOBAL = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Tables:
    """Arrays by port, router, node and pair of groups."""

    #: By port: its router, the port at the other end (of a node's port: itself), cycles, kind, and whether it has failed.
    router: Ints32
    peer: Ints32
    latency: Ints32
    kind: Ints32
    dead: npt.NDArray[np.bool_]
    #: Where the ports of router r begin, and where its global ones do.
    first: Ints32
    first_global: Ints32
    group: Ints32
    #: The place of a router within its group, and the first port and number of parallel ports to place i: [router, place, 2].
    place: Ints32
    local: Ints32
    #: The routers of group G are `members[member_start[G]:member_start[G + 1]]`; its nodes likewise.
    member_start: Ints32
    members: Ints32
    node_start: Ints32
    group_nodes: Ints32
    node_port: Ints32
    #: Working channels from group G to group D: `channels[channel_start[G·g + D]:channel_start[G·g + D + 1]]`, as ports of G.
    channel_start: Ints32
    channels: Ints32

    @property
    def channel_ports(self) -> npt.NDArray[np.int64]:
        """The ports that lead to other routers, in order."""
        return np.flatnonzero(self.kind != NODE)


def tables_of(net: Network) -> Tables:
    """The tables of a network."""
    routers, groups, nodes = net.routers, net.groups, net.nodes
    order = np.argsort(net.group, kind="stable")
    member_start = np.concatenate([[0], np.cumsum(np.bincount(net.group, minlength=groups))])
    place = np.empty(routers, np.int64)
    place[order] = np.arange(routers) - member_start[net.group[order]]

    # One row per end of a link: (router, kind, place of the neighbour or 0, link).
    links = np.arange(net.links)
    at = np.concatenate([net.node_router, net.a, net.b])
    to = np.concatenate([net.node_router, net.b, net.a])
    link = np.concatenate([np.arange(nodes), links, links])
    linked = np.where(net.is_global, GLOBAL, LOCAL)
    kind = np.concatenate([np.full(nodes, NODE), linked, linked])
    neighbour = np.where(kind == LOCAL, place[to], 0)
    ports = np.lexsort((link, neighbour, kind, at))
    number = np.empty(len(ports), np.int64)
    number[ports] = np.arange(len(ports))
    peer_row = np.concatenate([np.arange(nodes), nodes + net.links + links, nodes + links])
    cycles = np.concatenate([np.zeros(nodes, np.int64), net.latency, net.latency])
    dead = np.concatenate([np.zeros(nodes, bool), net.dead, net.dead])

    router, kinds = at[ports], kind[ports]
    first = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=routers))])
    first_global = first[1:] - np.bincount(at[kind == GLOBAL], minlength=routers)
    local = np.zeros((routers, int(np.bincount(net.group).max()), 2), np.int32)
    inner = np.flatnonzero(kinds == LOCAL)
    own, towards = router[inner], neighbour[ports][inner]
    np.add.at(local[:, :, 1], (own, towards), 1)
    # Parallel ports stand next to each other, so the first one and their number say which they are.
    local[:, :, 0] = len(ports)
    np.minimum.at(local[:, :, 0], (own, towards), inner)
    local[local[:, :, 1] == 0] = 0

    peer = number[peer_row[ports]]
    world = np.flatnonzero((kinds == GLOBAL) & ~dead[ports])
    pair = net.group[router[world]] * groups + net.group[router[peer[world]]]
    channel_start = np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=groups * groups))])
    node_group = net.group[net.node_router]
    i32 = np.int32
    return Tables(
        router.astype(i32), peer.astype(i32), cycles[ports].astype(i32), kinds.astype(i32), dead[ports], first.astype(i32),
        first_global.astype(i32), net.group.astype(i32), place.astype(i32), local, member_start.astype(i32), order.astype(i32),
        np.concatenate([[0], np.cumsum(np.bincount(node_group, minlength=groups))]).astype(i32),
        np.argsort(node_group, kind="stable").astype(i32), number[:nodes].astype(i32), channel_start.astype(i32),
        world[np.argsort(pair, kind="stable")].astype(i32),
    )  # fmt: skip
