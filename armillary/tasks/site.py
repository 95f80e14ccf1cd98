"""Where virtual workers stand: their kinds and nodes, how fast they are, what a transfer between nodes takes when nothing is in its way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.tasks.graph import Task, Work

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: Virtual workers that one run may have.
MOST_WORKERS = 2_000_000


class Site:
    """The workers of a simulated run: a cluster's cores and devices, `n` cores of one node, or kinds, each on its own node."""

    def __init__(self, machine: Cluster | int | Sequence[str], latency: float, bandwidth: float) -> None:
        self.cluster: Cluster | None = None
        self.latency, self.bandwidth = latency, bandwidth
        self.kinds: list[str] = []
        #: Node of each worker, and names of the nodes.
        self.node_of: list[int] = []
        self.nodes: tuple[str, ...] = ("host",)
        self._speeds: dict[tuple[int, str], tuple[float | None, float | None]] = {}
        if isinstance(machine, int):
            if not 1 <= machine <= MOST_WORKERS:
                raise InputError(f"found {machine} workers; expected 1 to {MOST_WORKERS}", where="Virtual")
            self.kinds, self.node_of = ["cpu"] * machine, [0] * machine
        elif hasattr(machine, "groups"):
            self._from_cluster(machine)
        else:
            self.kinds = [str(kind) for kind in machine]
            self.node_of = list(range(len(self.kinds)))
            self.nodes = tuple(f"n{i}" for i in self.node_of)
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
        self.nodes = tuple(names)

    def seconds(self, task: Task, worker: int) -> float:
        """What the task is expected to take on a worker; infinite where it may not run."""
        kind = self.kinds[worker]
        if kind not in task.on and not (isinstance(task.cost, dict) and kind in task.cost):
            return math.inf
        cost = task.cost
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
        """(flop/s, bytes/s) of one worker: a device, or a core with its share of the socket."""
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
        """Seconds to move bytes between two nodes when nothing else moves."""
        if source == target or not nbytes:
            return 0.0
        if self.cluster is not None:
            alpha, beta = self.cluster.alpha_beta(f"n{source}", f"n{target}")
            return alpha + nbytes * beta
        return self.latency + nbytes / self.bandwidth
