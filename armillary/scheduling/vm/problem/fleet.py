"""Hosts as arrays: cores, hardware threads, speed, last-level cache and memory, with how many vCPUs each may promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster import Cluster

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: What a file may ask for.
MOST_HOSTS, MOST_VMS = 20_000, 200_000


@dataclass(frozen=True)
class Hosts:
    """Hosts by number; every array is [hosts]."""

    names: tuple[str, ...]
    sockets: Ints
    #: Physical cores and hardware threads of the whole host.
    cores: Ints
    threads: Ints
    speed: Floats
    #: Last-level cache in MB, memory in GB and memory bandwidth in GB/s.
    llc_mb: Floats
    memory_gb: Floats
    bandwidth_gbps: Floats

    def __post_init__(self) -> None:
        ranges: tuple[tuple[str, Any, float, float], ...] = (
            ("sockets", self.sockets, 1, 64), ("cores", self.cores, 1, 4096), ("threads", self.threads, 1, 16_384),
            ("speed", self.speed, 0.01, 100), ("llc_mb", self.llc_mb, 0, 1e5), ("memory_gb", self.memory_gb, 0.001, 1e6),
            ("bandwidth_gbps", self.bandwidth_gbps, 0.001, 1e6),
        )  # fmt: skip
        if not 1 <= len(self.names) <= MOST_HOSTS:
            raise InputError(f"found {len(self.names):,} hosts; expected 1 to {MOST_HOSTS:,}")
        for name, values, low, high in ranges:
            bad = ~((values >= low) & (values <= high))
            if bad.any():
                at = int(np.argmax(bad))
                raise InputError(f"{name} of {self.names[at]}: found {values[at]:g}; expected {low:g} to {high:g}")
        bad = (self.threads % self.cores != 0) | (self.cores % self.sockets != 0)
        if bad.any():
            at = int(np.argmax(bad))
            found = f"{self.threads[at]} threads, {self.cores[at]} cores and {self.sockets[at]} sockets"
            raise InputError(f"{self.names[at]}: found {found}; expected each a multiple of the next")

    def __len__(self) -> int:
        return len(self.names)

    def room(self, overcommit: float) -> Floats:
        """The vCPUs that each host may promise if `overcommit` of them share a hardware thread."""
        return np.floor(self.threads * overcommit + 1e-9)


def built_in(count: int, cluster: Cluster | None = None) -> Hosts:
    """`count` hosts of a cluster, taken from its groups in turn; those of the preset `smt-2x16x2` by default."""
    if cluster is None:
        from armillary.cluster import preset

        cluster = preset("smt-2x16x2")
    groups = [group.node for group in cluster.groups if group.node.sockets]
    if not groups:
        raise InputError("found no node with a socket; expected hosts with cores")
    rows = []
    for node in groups:
        socket = node.sockets[0]
        sockets = sum(int(one.count) for one in node.sockets)
        cores = sum(int(one.count) * int(one.cores or 1) for one in node.sockets)
        shared = max((cache for cache in socket.caches), key=lambda cache: cache.level, default=None)
        ram = [memory for memory in node.memories if memory.kind == "dram"]
        times = [int(memory.count) * (sockets if memory.attached == "socket" else 1) for memory in ram]
        rows.append((
            sockets, cores, cores * socket.threads_per_core, float(socket.speed or 1),
            0.0 if shared is None else sockets * float(shared.size or 0) / 1e6,
            sum(t * float(memory.size or 0) for t, memory in zip(times, ram)) / 1e9 or 256.0,
            sum(t * float(memory.bandwidth or 0) for t, memory in zip(times, ram)) / 1e9 or 100.0,
        ))  # fmt: skip
    table = np.array([rows[i % len(rows)] for i in range(count)], np.float64).reshape(count, 7)
    return Hosts(
        tuple(f"h{i:04d}" for i in range(count)), table[:, 0].astype(np.int64), table[:, 1].astype(np.int64),
        table[:, 2].astype(np.int64), table[:, 3], table[:, 4], table[:, 5], table[:, 6],
    )  # fmt: skip
