"""One node, device, NUMA domain or core. They are made on demand, so a machine of ten thousand nodes costs nothing in advance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from armillary.cluster import schema as s
from armillary.errors import InputError


@dataclass(frozen=True)
class Core:
    """One core: its number in the node, its socket and NUMA domain, and the hardware threads that it runs."""

    index: int
    socket: int
    numa: int
    #: Thread t of core k has the number t · cores + k, as Linux counts.
    threads: tuple[int, ...]
    type: s.Socket


@dataclass(frozen=True)
class Numa:
    """One NUMA domain and its cores, numbered within the node."""

    index: int
    socket: int
    cores: range


@dataclass(frozen=True)
class PlacedDevice:
    """Device `index` of a node, which has the attributes of its type (`memory`, `peak`, `power`…)."""

    index: int
    node: int
    type: s.Device
    #: Where it is attached, such as "socket:0" or "numa:3"; None if the file does not say.
    near: str | None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.type, name)


@dataclass(frozen=True)
class PlacedNic:
    """NIC `index` of a node, which has the attributes of its type (`rate`, `network`…)."""

    index: int
    node: int
    type: s.Nic
    near: str | None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.type, name)


def spread(near: str | tuple[str, ...] | None, i: int, devices: int = 0) -> str | None:
    """Where the i-th of several parts is attached; "device" means one beside each device."""
    one = near[i] if isinstance(near, tuple) else near
    return f"device:{i % devices}" if one == "device" and devices else one


@dataclass(frozen=True)
class PlacedNode:
    """Node `index` of the cluster, `rank` of its group."""

    index: int
    rank: int
    group: s.NodeGroup

    @property
    def type(self) -> s.Node:
        """The type of all nodes of the group."""
        return self.group.node

    @property
    def name(self) -> str:
        """The name of the group and the number in it, such as `gpu-17`."""
        return f"{self.group.name}-{self.rank}"

    @property
    def rack(self) -> int | None:
        """The rack of the group that it stands in, or None if the file does not say."""
        return None if self.type.rack is None else self.rank // self.type.rack

    @cached_property
    def devices(self) -> tuple[PlacedDevice, ...]:
        """The devices of the node, in the order of the file."""
        found: list[PlacedDevice] = []
        for device in self.type.devices:
            found += [PlacedDevice(len(found) + i, self.index, device, spread(device.near, i)) for i in range(device.count)]
        return tuple(found)

    def device(self, index: int) -> PlacedDevice:
        """Device `index`, counted over all kinds."""
        return _pick(self.devices, index, "device", self.name)

    @cached_property
    def nics(self) -> tuple[PlacedNic, ...]:
        """The NICs of the node, in the order of the file."""
        found: list[PlacedNic] = []
        devices = sum(d.count for d in self.type.devices)
        for nic in self.type.nics:
            found += [PlacedNic(len(found) + i, self.index, nic, spread(nic.near, i, devices)) for i in range(nic.count)]
        return tuple(found)

    def nic(self, index: int) -> PlacedNic:
        """NIC `index`, counted over all networks."""
        return _pick(self.nics, index, "NIC", self.name)

    @property
    def memories(self) -> tuple[s.Memory, ...]:
        """The memory tiers that the CPUs of the node see, fastest first."""
        return self.type.memories

    def memory(self, name: str | None = None) -> s.Memory:
        """The memory tier of that name or kind; without a name, the first."""
        for tier in self.memories:
            if name is None or name in (tier.name, tier.kind):
                return tier
        raise InputError(f'node {self.name} has no memory "{name}"; it has {", ".join(m.called for m in self.memories) or "none"}')

    @cached_property
    def sockets(self) -> tuple[s.Socket, ...]:
        """The sockets, with one entry per processor."""
        return tuple(socket for socket in self.type.sockets for _ in range(socket.count))

    @property
    def cores(self) -> int:
        """The number of cores of the node."""
        return sum(int(socket.cores or 0) for socket in self.sockets)

    @property
    def threads(self) -> int:
        """The number of hardware threads of the node."""
        return sum(int(socket.cores or 0) * socket.threads_per_core for socket in self.sockets)

    @cached_property
    def numa(self) -> tuple[Numa, ...]:
        """The NUMA domains of the node, those of socket 0 first."""
        found: list[Numa] = []
        first = 0
        for k, socket in enumerate(self.sockets):
            each = int(socket.cores or 0) // socket.numa
            for _ in range(socket.numa):
                found.append(Numa(len(found), k, range(first, first + each)))
                first += each
        return tuple(found)

    def core(self, index: int) -> Core:
        """Core `index` of the node."""
        for domain in self.numa:
            if index in domain.cores:
                socket = self.sockets[domain.socket]
                return Core(index, domain.socket, domain.index, self._threads_of(index), socket)
        raise InputError(f"node {self.name} has cores 0 to {self.cores - 1}, not {index}")

    def _threads_of(self, core: int) -> tuple[int, ...]:
        # As Linux enumerates, only cores with more threads than others take part in the second and later rounds.
        counts = [int(socket.threads_per_core) for socket in self.sockets for _ in range(int(socket.cores or 0))]
        threads, base = [], 0
        for t in range(max(counts)):
            having = [k for k, n in enumerate(counts) if n > t]
            if counts[core] > t:
                threads.append(base + having.index(core))
            base += len(having)
        return tuple(threads)

    @cached_property
    def siblings(self) -> tuple[tuple[int, ...], ...]:
        """For each core, the hardware threads that share it."""
        return tuple(self._threads_of(core) for core in range(self.cores))

    def cache_domains(self, level: int) -> np.ndarray:
        """For each core, the number of the level-`level` cache that it uses, or −1 if the file does not say."""
        found = np.full(self.cores, -1, np.int32)
        first = domain = 0
        for socket in self.sockets:
            cores = int(socket.cores or 0)
            for cache in socket.caches:
                if cache.level == level:
                    each = int(cache.shared_by or 1)
                    found[first : first + cores] = domain + np.arange(cores) // each
                    domain += -(-cores // each)
            first += cores
        return found

    @property
    def usable_cores(self) -> float:
        """The number of cores that limits leave, or of all cores if the file names no limit."""
        limit = self.type.usable.cores if self.type.usable else None
        return float(self.cores if limit is None else limit)


def _pick(things: tuple[Any, ...], index: int, what: str, node: str) -> Any:
    if not 0 <= index < len(things):
        raise InputError(f"node {node} has {len(things)} {what}s, no {what} {index}")
    return things[index]
