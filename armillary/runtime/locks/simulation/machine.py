"""The cores and the prices of moving a cache line between them, from a cluster's `coherence` and memory latency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: Picoseconds of one step of the work inside and outside the section, of a spin's pause, and per copy that a write invalidates (ours).
STEP_PS, PAUSE_PS, INVALIDATE_PS = 1_000, 10_000, 5_000
MOST_CORES = 256
#: A millisecond: with 2 million episodes, whose lines 256 cores fetch one after another, picoseconds still fit 64 bits.
MOST_LATENCY_PS = 1_000_000_000


@dataclass(frozen=True)
class Machine:
    """Cores by socket, and picoseconds per access."""

    sockets: tuple[int, ...]
    local_ps: int = 1_000
    socket_ps: int = 45_000
    remote_ps: int = 130_000
    memory_ps: int = 90_000
    invalidate_ps: int = INVALIDATE_PS
    #: Whether stores wait in a buffer while the thread goes on: their lines are asked for at once and written in order.
    buffered: bool = False

    def __post_init__(self) -> None:
        if not self.sockets or min(self.sockets) < 1 or self.cores > MOST_CORES:
            raise InputError(f"found sockets of {list(self.sockets)} cores; expected 1 to {MOST_CORES} cores in all, at least one in each")
        for name in ("local", "socket", "remote", "memory", "invalidate"):
            found = getattr(self, f"{name}_ps")
            if not 0 <= found <= MOST_LATENCY_PS:
                raise InputError(f"{name} latency: found {found * 1e-12:.3g} s; expected 0 to {MOST_LATENCY_PS * 1e-12:.3g}")

    @property
    def cores(self) -> int:
        """The number of cores."""
        return sum(self.sockets)

    @cached_property
    def socket_of(self) -> npt.NDArray[np.int64]:
        """The socket of each core; those of one socket follow each other."""
        return np.repeat(np.arange(len(self.sockets)), self.sockets).astype(np.int64)

    @cached_property
    def prices(self) -> npt.NDArray[np.int64]:
        """Hit, same socket, other socket, memory, per invalidated copy, pause; and whether stores are buffered."""
        return np.array(
            [self.local_ps, self.socket_ps, self.remote_ps, self.memory_ps, self.invalidate_ps, PAUSE_PS, int(self.buffered)], np.int64
        )

    @classmethod
    def of(cls, cluster: Cluster) -> Machine:
        """The first node of a cluster that says what transfers of cache lines cost."""
        node = cluster.node(0)
        sockets = node.sockets
        found = sockets[0].coherence if sockets else None
        latency = node.memories[0].latency if node.memories else None
        if found is None or found.local is None or found.socket is None or latency is None:
            raise InputError(f"{cluster.name}: found no coherence latencies of a socket or no memory latency; expected both, in seconds")
        remote = found.socket if found.remote is None else found.remote
        seconds = tuple(float(one) for one in (found.local, found.socket, remote, latency))
        if not all(math.isfinite(1e12 * one) for one in seconds):
            raise InputError(f"{cluster.name}: found a latency of {max(seconds):.3g} s; expected at most {MOST_LATENCY_PS * 1e-12:.3g}")
        local, same, other, memory = (round(1e12 * one) for one in seconds)
        try:
            return cls(tuple(int(socket.cores or 0) for socket in sockets), local, same, other, memory)
        except InputError as wrong:
            raise InputError(f"{cluster.name}: {wrong}") from None
