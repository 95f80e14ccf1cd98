"""The storage tiers of a cluster: a shared file system, and local ones on every node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: Bytes that the operating system reads ahead or writes behind if a task's operations follow each other.
READ_AHEAD = 1 << 17
#: Bytes per operation of a copy.
COPY = 1 << 24
MOST_NODES = 4096
MOST_TIERS = 8


@dataclass(frozen=True)
class Tier:
    """One tier; rates are in bytes per second.

    A task whose operations move t bytes gets at most t / (latency + t / stream). All tasks of a node get at most the node's rate, and
    all nodes together the aggregate rate of a shared tier.
    """

    name: str
    shared: bool
    read_rate: float
    write_rate: float
    read_stream: float
    write_stream: float
    read_latency_s: float = 0.0
    write_latency_s: float = 0.0
    aggregate_read: float = float("inf")
    aggregate_write: float = float("inf")
    #: Bytes per node, or of the whole shared tier.
    capacity: float = float("inf")

    def alone(self, write: bool, transfer: float, random: bool = False) -> float:
        """Bytes per second of one task alone, for operations of `transfer` bytes."""
        step = transfer if random else max(transfer, READ_AHEAD)
        latency, stream = (self.write_latency_s, self.write_stream) if write else (self.read_latency_s, self.read_stream)
        return min(step / (latency + step / stream), self.write_rate if write else self.read_rate)

    def node(self, write: bool) -> float:
        """Bytes per second of all tasks of one node."""
        return self.write_rate if write else self.read_rate

    def aggregate(self, write: bool) -> float:
        """Bytes per second of all nodes, infinite for a local tier."""
        return self.aggregate_write if write else self.aggregate_read


@dataclass(frozen=True)
class Machine:
    """Equal nodes with cores, a network and tiers, of which exactly one is shared."""

    name: str
    nodes: int
    cores: int
    nic_rate: float
    tiers: tuple[Tier, ...]

    @property
    def shared(self) -> int:
        """The number of the shared tier."""
        return next(n for n, tier in enumerate(self.tiers) if tier.shared)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tiers."""
        return tuple(tier.name for tier in self.tiers)

    @staticmethod
    def of(cluster: Cluster | str, tiers: tuple[str, ...] = ()) -> Machine:
        """The first group of nodes of a cluster (a description, a preset or a file), with these tiers, or all.

        A tier of kind `pfs` is shared. Memory (`dram`) is used as tmpfs, whose rate is half the memory's, because a copy reads and
        writes it. The shared tier comes first, then the fastest local one last.
        """
        from armillary.cluster import find

        found = find(cluster) if isinstance(cluster, str) else cluster
        if not found.groups:
            raise InputError(f"{found.name} has no nodes", where="cluster")
        group = found.groups[0]
        cores = sum(int(socket.count) * int(socket.cores or 1) for socket in group.node.sockets)
        made = []
        for memory in group.node.memories:
            if memory.kind not in ("dram", "nvme", "ssd", "hdd", "pmem", "pfs") or memory.bandwidth is None:
                continue
            shared, half = memory.kind == "pfs", 0.5 if memory.kind == "dram" else 1.0
            read = half * float(memory.bandwidth) * int(memory.count)
            write = half * float(memory.write_bandwidth or memory.bandwidth) * int(memory.count)
            stream = float(memory.copy_bandwidth_per_core or float("inf"))
            latency = float(memory.latency or 0.0)
            total = float(memory.aggregate_bandwidth or float("inf")) if shared else float("inf")
            total_write = float(memory.aggregate_write_bandwidth or memory.aggregate_bandwidth or float("inf")) if shared else float("inf")
            made.append(Tier(
                memory.called, shared, read, write, min(read, stream), min(write, stream), latency, float(memory.write_latency or latency),
                total, total_write, float(memory.size) if memory.size is not None else float("inf"),
            ))  # fmt: skip
        made.sort(key=lambda tier: (not tier.shared, tier.read_rate))
        for name in tiers:
            if name not in [tier.name for tier in made]:
                raise unknown("tier", name, [tier.name for tier in made], where="tiers")
        made = [tier for tier in made if not tiers or tier.name in tiers]
        nic = group.node.nics[0].rate if group.node.nics else None
        machine = Machine(found.name, int(group.count), cores, float(nic) if nic is not None else 0.0, tuple(made))
        machine.check()
        return machine

    def check(self) -> None:
        """Raises an InputError unless a workflow can run on it."""
        shared = [tier.name for tier in self.tiers if tier.shared]
        if len(shared) != 1 or len(self.tiers) < 2 or len(set(self.names)) < len(self.tiers) or len(self.tiers) > MOST_TIERS:
            said = ", ".join(self.names) or "none"
            raise InputError(f"found the tiers {said}; expected one of kind pfs and up to {MOST_TIERS - 1} local ones", where=self.name)
        if self.cores < 1 or not self.nic_rate > 0 or not 1 <= self.nodes <= MOST_NODES:
            raise InputError(f"expected 1 to {MOST_NODES} nodes with cores and a NIC with its rate", where=self.name)

    def flat(self) -> Machine:
        """The same machine with all tiers as fast as each other: none is worth moving to."""
        like = self.tiers[self.shared]
        same = [
            replace(like, name=tier.name, shared=tier.shared, capacity=tier.capacity, aggregate_read=float("inf"),
                    aggregate_write=float("inf")) for tier in self.tiers
        ]  # fmt: skip
        return replace(self, name=f"{self.name}-flat", tiers=tuple(same))
