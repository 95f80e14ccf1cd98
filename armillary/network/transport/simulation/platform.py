"""A cluster as transports see it: cores, links, loopbacks, local disks and the shared file system, as pools of the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from armillary.cluster import Cluster
from armillary.engine import Network, Pool, Simulation, Uses
from armillary.errors import InputError

INSITU = "two-clusters-insitu"


@dataclass(frozen=True)
class Extras:
    """What a cluster file has no field for. Seconds and bytes/s; the loopback is used where a node has no memory to copy through."""

    loopback_rate: float = math.inf
    loopback_latency: float = 0.0
    #: Latency of each switch on a route.
    switch_latency: float = 0.0
    #: The link before the shared file system: by group its rate, and its latency.
    store_rate: tuple[tuple[str, float], ...] = ()
    store_latency: float = 0.0
    #: Seconds of a file operation before its bytes move, and of a transfer between processes.
    file_latency: float = 0.0
    read_latency: float = 0.0


#: The published platform of the in situ study.
PUBLISHED = Extras(1e9 / 8, 1.75e-3, 1e-3, (("a", 20e9 / 8), ("b", 10e9 / 8)), 1e-3)


class Platform:
    """The pools of one simulation over a cluster."""

    def __init__(self, sim: Simulation, cluster: Cluster, extras: Extras | None = None) -> None:
        self.sim = sim
        self.cluster = cluster
        self.extras = extras or (PUBLISHED if cluster.name == INSITU else Extras())
        self.network = Network(sim, cluster)
        self._pools: dict[Any, Pool] = {}
        self._ways: dict[Any, tuple[Uses, float]] = {}
        self.written: dict[Any, float] = {}

    def nodes(self, group: str) -> range:
        """The nodes of a group."""
        first = 0
        for one in self.cluster.groups:
            if one.name == group:
                return range(first, first + one.count)
            first += one.count
        self.cluster.group(group)  # It says which groups there are.
        raise AssertionError

    def cores(self, node: int) -> tuple[Pool, float]:
        """All cores of a node in flop/s, and one of them."""
        rate, each = speed(self.cluster, node)
        return self._pool(("cores", node), rate, f"cores of node {node}"), each

    def way(self, source: int, target: int) -> tuple[Uses, float]:
        """Pools and latency from node to node; inside a node, its loopback."""
        found = self._ways.get((source, target))
        if found is None:
            found = self._ways[source, target] = self._loopback(source) if source == target else self._across(source, target)
        return found

    def _loopback(self, node: int) -> tuple[Uses, float]:
        e = self.extras
        if e.loopback_rate < math.inf:
            pool = self._pool(("loopback", node), e.loopback_rate, f"loopback of node {node}", "fatpipe")
            return Uses(self.sim, pool), e.loopback_latency
        if any(m.kind in ("dram", "hbm") and m.bandwidth for m in self.cluster.node(node).type.memories):
            return Uses(self.sim, self.network.memory(node)), e.loopback_latency
        return Uses(self.sim, []), e.loopback_latency

    def _across(self, source: int, target: int) -> tuple[Uses, float]:
        route = self.network.route(source, target)
        return Uses._existing(self.sim, route.pools, route.uses), route.latency + self.extras.switch_latency * max(len(route.links) - 1, 0)

    def store_way(self, node: int) -> tuple[Uses, float]:
        """Pools and latency between a node and the shared file system: the node's link, its first switch, and the store's own link."""
        key = ("store", node)
        if key not in self._ways:
            group = self.cluster.node(node).group.name
            pools, late = [], self.extras.store_latency
            if self.cluster.networks and self.cluster.nodes > 1:
                fabric = self.network.fabric()
                link = self.network._host_link(node, 0, None)
                pools, late = [self.network.link(link)], late + float(fabric.graph.latency[link >> 1]) + self.extras.switch_latency
                if fabric.switches >= 0:
                    pools.append(Pool._existing(self.sim, fabric.switches + fabric.ends(link)[1], "switch"))
            rate = dict(self.extras.store_rate).get(group)
            if rate is not None:
                pools.append(self._pool(("store", group), rate, f"link of the file system to {group}"))
            self._ways[key] = Uses(self.sim, pools), late
        return self._ways[key]

    def has_disk(self, node: int) -> bool:
        """Whether a node has a disk of its own."""
        return any(m.kind in ("ssd", "nvme", "hdd") and m.attached == "node" for m in self.cluster.node(node).type.memories)

    def disk(self, node: int, shared: bool) -> tuple[str, Any, float]:
        """(tier, key of the store, bytes that fit) of the disk that a node writes to."""
        for m in self.cluster.node(node).type.memories:
            if (m.attached == "network") if shared else (m.attached == "node" and m.kind in ("ssd", "nvme", "hdd")):
                room = math.inf if m.size is None else float(m.size) * (1 if shared else m.count)
                return m.called, (None if shared else node, m.called), room
        what = "file system on the network" if shared else "disk of its own"
        raise InputError(f"node {self.cluster.node(node).name} has no {what}; expected one for files there", where=self.cluster.name)

    def store(self, node: int, shared: bool, operation: str) -> Pool:
        """The pool that reads or writes of a node use."""
        return self.network.storage(node, self.disk(node, shared)[0], operation)

    def fill(self, node: int, shared: bool, nbytes: float) -> None:
        """Takes room for files; a full disk is refused."""
        _, key, room = self.disk(node, shared)
        held = self.written[key] = self.written.get(key, 0.0) + nbytes
        if held > room:
            name = "the shared file system" if shared else f"the disk of node {self.cluster.node(node).name}"
            raise InputError(f"{name} is full: found {held:.4g} bytes written; expected at most {room:.4g}", where=self.cluster.name)

    def _pool(self, key: Any, capacity: float, name: str, policy: str = "shared") -> Pool:
        if key not in self._pools:
            self._pools[key] = Pool(self.sim, capacity, name, policy)
        return self._pools[key]


def speed(cluster: Cluster, node: int) -> tuple[float, float]:
    """Flop/s of all cores of a node, and of one."""
    sockets = cluster.node(node).type.sockets
    cores = sum(s.count * int(s.cores or 0) for s in sockets)
    rate = math.fsum(s.count * float(s.peak("fp64") or 0.0) for s in sockets)
    if not cores or not rate:
        raise InputError(f"node {node}: the cores or their fp64 flop/s are unknown; expected both", where=cluster.name)
    return rate, rate / cores


def group_cores(cluster: Cluster, group: str) -> int:
    """Cores of all nodes of a group."""
    found = cluster.group(group)
    return found.count * sum(s.count * int(s.cores or 0) for s in found.node.sockets)
