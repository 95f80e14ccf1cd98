"""Virtual workers: their kinds, nodes and speeds, and the time of an undisturbed transfer between nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, unknown
from armillary.tasks.graph import Task, Work

if TYPE_CHECKING:
    from armillary.cluster import Cluster
    from armillary.tasks.data import Data

#: The most virtual workers of one run.
MOST_WORKERS = 2_000_000


class Site:
    """The workers of a simulated run: the cores and devices of a cluster, `n` cores of one node, or a list of
    kinds, each on its own node.
    """

    def __init__(self, machine: Cluster | int | Sequence[str], latency: float, bandwidth: float, memory: float | None = None) -> None:
        self.cluster: Cluster | None = None
        self.latency, self.bandwidth = latency, bandwidth
        self.kinds: list[str] = []
        #: The node of each worker, and the names of the nodes.
        self.node_of: list[int] = []
        self.nodes: tuple[str, ...] = ("host",)
        #: The memories, each with its node, the part of it (None for the node's own memory) and its bytes, and the memory of each worker.
        self.place_node: list[int] = []
        self.place_part: list[str | None] = []
        self.capacities: list[float] = []
        self.place_of: list[int] = []
        #: The bytes of each node's own memory, for tasks that need memory; infinite if unknown.
        self.node_memory: list[float] = []
        self._memory = memory
        self._ways: dict[tuple[int | str, int | str], tuple[float, float]] = {}
        self._speeds: dict[tuple[int, str], tuple[float | None, float | None]] = {}
        if isinstance(machine, int):
            if not 1 <= machine <= MOST_WORKERS:
                raise InputError(f"found {machine} workers; expected 1 to {MOST_WORKERS}", where="Virtual")
            self.kinds, self.node_of = ["cpu"] * machine, [0] * machine
            self.place_of = [self._place(0, None, None)] * machine
        elif hasattr(machine, "groups"):
            self._from_cluster(machine)
        else:
            self.kinds = [str(kind) for kind in machine]
            self.node_of = list(range(len(self.kinds)))
            self.nodes = tuple(f"n{i}" for i in self.node_of)
            self.place_of = [self._place(node, None, None) for node in self.node_of]
        if not self.kinds:
            raise InputError("there are no workers: no node states its cores, and there are no devices", where="Virtual")
        self.workers_of: list[list[int]] = [[] for _ in self.nodes]
        for worker, node in enumerate(self.node_of):
            self.workers_of[node].append(worker)
        self.first = {kind: self.kinds.index(kind) for kind in dict.fromkeys(self.kinds)}

    def _from_cluster(self, cluster: Any) -> None:
        self.cluster = cluster
        names = []
        for number in range(cluster.nodes):
            node = cluster.node(number)
            names.append(node.name)
            kinds = ["cpu"] * node.cores + [device.kind for device in node.devices]
            if len(self.kinds) + len(kinds) > MOST_WORKERS:
                raise InputError(f"{cluster.name} has more than {MOST_WORKERS} cores and devices; take a slice of it", where="Virtual")
            self.kinds += kinds
            self.node_of += [number] * len(kinds)
            own = self._place(number, None, node.memory().size if node.memories else None)
            self.place_of += [own] * node.cores
            for device in node.devices:
                apart = device.memory is not None and self._reachable(number, device.index)
                self.place_of.append(self._place(number, f"device:{device.index}", device.memory.size) if apart else own)
        self.nodes = tuple(names)

    def _place(self, node: int, part: str | None, size: Any) -> int:
        if part is None:
            self.node_memory.append(float(size) if size else math.inf)
        capacity = self._memory if self._memory is not None else size
        self.place_node.append(node)
        self.place_part.append(part)
        self.capacities.append(math.inf if capacity is None else float(capacity))
        return len(self.place_node) - 1

    def _reachable(self, node: int, device: int) -> bool:
        """Whether the cluster states the speed of the link to a device; otherwise the node's memory also serves as that of the device."""
        assert self.cluster is not None
        if not self.cluster.node(node).sockets:
            return False
        way = self.cluster.path(f"n{node}/socket:0", f"n{node}/device:{device}")
        return way.latency is not None and way.rate is not None

    def home(self, data: Data) -> int:
        """The memory where data is at the start: `node`, or `node/device:k`; the first one if none is stated."""
        if data.home is None:
            return 0
        name, _, part = data.home.partition("/")
        for place, (node, own) in enumerate(zip(self.place_node, self.place_part)):
            if self.nodes[node] == name and own == (part or None):
                return place
        names = [self.nodes[n] + (f"/{p}" if p else "") for n, p in zip(self.place_node, self.place_part)]
        raise unknown("home", data.home, names, where=f"data {data.name}")

    def ends(self, source: int, target: int) -> tuple[int | str, int | str]:
        """Two memories as the ends of a flow."""
        parts = self.place_part[source], self.place_part[target]
        nodes = self.place_node[source], self.place_node[target]
        if parts == (None, None):
            return nodes
        return f"n{nodes[0]}/{parts[0] or 'socket:0'}", f"n{nodes[1]}/{parts[1] or 'socket:0'}"

    def seconds(self, task: Task, worker: int) -> float:
        """The expected seconds of the task on a worker; infinite if it may not run there."""
        kind, cost = self.kinds[worker], task.cost
        if cost.__class__ is float and kind in task.on:
            return cost
        if kind not in task.on and not (isinstance(task.cost, dict) and kind in task.cost):
            return math.inf
        if cost is None:
            return 0.0
        if isinstance(cost, Work):
            return self._roofline(cost, self.node_of[worker], kind, task)
        if isinstance(cost, int | float):
            return float(cost)
        return float(cost.get(kind, math.inf))

    def _roofline(self, work: Work, node: int, kind: str, task: Task) -> float:
        if (node, kind + work.precision) not in self._speeds:
            self._speeds[node, kind + work.precision] = self._speed(node, kind, work.precision)
        peak, bandwidth = self._speeds[node, kind + work.precision]
        seconds = 0.0
        for amount, speed, what in ((work.flops, peak, f"{work.precision} peak"), (work.bytes, bandwidth, "memory bandwidth")):
            if amount and not speed:
                raise InputError(f"task {task.key} states Work, and the {what} of a {kind} worker is unknown", where=self.nodes[node])
            seconds = max(seconds, amount / speed if amount and speed else 0.0)
        return seconds

    def _speed(self, number: int, kind: str, precision: str) -> tuple[float | None, float | None]:
        """The (flop/s, bytes/s) of one worker, which is a device, or a core with its share of the socket."""
        if self.cluster is None:
            return None, None
        node = self.cluster.node(number)
        if kind == "cpu":
            peak = sum(float(socket.peak(precision) or 0.0) for socket in node.sockets)
            bandwidth = node.memory().bandwidth if node.memories else None
            return peak / node.cores or None, float(bandwidth) / node.cores if bandwidth else None
        device = next(d for d in node.devices if d.kind == kind)
        bandwidth = device.memory.bandwidth if device.memory else None
        return float(device.peak[precision] or 0.0) or None, float(bandwidth) if bandwidth else None

    def transfer_s(self, nbytes: float, source: int, target: int) -> float:
        """Seconds to move bytes between two memories when nothing else moves."""
        if source == target or not nbytes:
            return 0.0
        if self.cluster is not None:
            ends = self.ends(source, target)
            if ends not in self._ways:
                self._ways[ends] = self.cluster.alpha_beta(*(f"n{end}" if isinstance(end, int) else end for end in ends))
            alpha, beta = self._ways[ends]
            return alpha + nbytes * beta
        return self.latency + nbytes / self.bandwidth
