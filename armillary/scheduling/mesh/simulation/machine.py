"""What a message costs inside a node and between nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: The most ranks of a simulation.
MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Machine:
    """Ranks per node, and α in µs and 1/β in bytes per µs inside a node (near) and between nodes (far)."""

    name: str = "amr-512"
    per_node: int = 16
    near_us: float = 0.6
    near_rate: float = 10_000.0
    far_us: float = 1.8
    far_rate: float = 4000.0
    #: µs of a rank for each message that it sends and that it receives.
    send_us: float = 0.25
    receive_us: float = 0.25

    @staticmethod
    def of(cluster: Cluster | str) -> Machine:
        """The first group of nodes of a cluster, a description, a preset or a file, with one rank per core and its first NIC."""
        from armillary.cluster import find

        found = find(cluster) if isinstance(cluster, str) else cluster
        if not found.groups:
            raise InputError(f"{found.name} has no nodes", where="cluster")
        node = found.groups[0].node
        cores = sum(int(socket.count) * int(socket.cores or 1) for socket in node.sockets)
        if cores < 1 or not node.nics or not node.links:
            raise InputError(f"{found.name}: expected nodes with cores, a NIC and a link between sockets", where="cluster")
        nic, link = node.nics[0], node.links[0]
        network = found.networks.get(nic.network or "")
        path = None if network is None else network.latency.path
        if nic.rate is None or link.rate is None or link.latency is None or (path is None and nic.latency is None):
            raise InputError(f"{found.name}: expected rate and latency of the NIC's network and of the node's link", where="cluster")
        far_s = float(path) if path is not None else float(nic.latency or 0)
        return Machine(
            found.name, cores, 1e6 * float(link.latency), 1e-6 * float(link.rate), 1e6 * far_s, 1e-6 * float(nic.rate),
            1e6 * float(nic.send_overhead or 0), 1e6 * float(nic.receive_overhead or 0),
        )  # fmt: skip

    def allreduce_us(self, ranks: int) -> float:
        """µs of an all-reduce of one number by recursive doubling, inside the nodes and then between them."""
        inside, nodes = min(ranks, self.per_node), -(-ranks // self.per_node)
        both = self.send_us + self.receive_us
        return math.ceil(math.log2(inside)) * (self.near_us + both) + math.ceil(math.log2(nodes)) * (self.far_us + both)
