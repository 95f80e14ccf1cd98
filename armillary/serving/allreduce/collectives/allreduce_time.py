"""Formulas for the modelled seconds of one all-reduce over servers of several GPUs on every path.

s servers of g GPUs each hold M bytes. B is the rate of a server's NIC in bytes/s, V that of a GPU's NVLink, S the rate at which the switch
aggregates for this job, and ρ = 2(s−1)/s the bytes that a ring sends per byte. NVLink reduces first and gathers last, which takes
2·((g−1)/g·M/V + (g−1)·α_nv). Between the servers the paths take

    ring    ρM/B + 2(s−1)α        switch   M/min(B, S) + RTT        both   max((x + ρ(1−x))·M/B, x·M/S) + latency

where x goes through the switch and 1−x round the ring at the same time and over the same NICs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.errors import InputError

#: Below this number of bytes latency decides, not bandwidth.
SMALL_BYTES = 64 << 10


@dataclass(frozen=True)
class Shape:
    """The shape of a collective: `servers` × `gpus`, bytes/s of NIC and NVLink, seconds per step on each, and per trip to the switch."""

    servers: int
    gpus: int
    nic: float
    nvlink: float
    nic_s: float = 10e-6
    nvlink_s: float = 2e-6
    rtt_s: float = 20e-6

    def __post_init__(self) -> None:
        for name in ("servers", "gpus"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: found {getattr(self, name)}; expected at least 1")
        for name in ("nic", "nvlink"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: found {getattr(self, name)}; expected bytes per second above 0")
        for name in ("nic_s", "nvlink_s", "rtt_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name}: found {getattr(self, name)}; expected seconds, 0 or more")

    @property
    def ranks(self) -> int:
        """The number of GPUs."""
        return self.servers * self.gpus

    @property
    def ring_s(self) -> float:
        """The latency of a ring between the servers in seconds."""
        return 2 * (self.servers - 1) * self.nic_s


def ring_factor(ranks: int) -> float:
    """Returns ρ, the bytes that each of `ranks` sends per byte that is reduced round a ring."""
    return 2.0 * (ranks - 1) / ranks


def nvlink_seconds(nbytes: float, at: Shape) -> float:
    """Returns the seconds of reduce-scatter and all-gather inside each server; small messages go to all at once if that is faster."""
    if at.gpus == 1:
        return 0.0
    ring = 2 * ((at.gpus - 1) / at.gpus * nbytes / at.nvlink + (at.gpus - 1) * at.nvlink_s)
    if nbytes >= SMALL_BYTES:
        return ring
    return min(ring, 2 * ((at.gpus - 1) * nbytes / at.nvlink + at.nvlink_s))


def flat_ring_seconds(nbytes: float, at: Shape) -> float:
    """Returns the seconds of one ring through all GPUs without NVLink, 2(n−1)/n·M/B + 2(n−1)·α."""
    n = at.ranks
    return 0.0 if n == 1 else ring_factor(n) * nbytes / at.nic + 2 * (n - 1) * at.nic_s


def hierarchical_seconds(nbytes: float, at: Shape) -> float:
    """Returns the seconds of an NVLink reduce-scatter, a ring between the servers, and an NVLink all-gather."""
    between = ring_factor(at.servers) * nbytes / at.nic + at.ring_s if at.servers > 1 else 0.0
    return nvlink_seconds(nbytes, at) + between


def ina_seconds(nbytes: float, at: Shape, switch_share: float) -> float:
    """Returns the seconds if every GPU sends its own M bytes through the switch, so that a server's NIC carries g·M."""
    return nbytes / _least(at.nic / at.gpus, switch_share) + at.rtt_s


def switch_seconds(nbytes: float, at: Shape, switch_share: float) -> float:
    """Returns the seconds of NVLink and then one stream per server through the switch, M/min(B, S) + RTT."""
    between = nbytes / _least(at.nic, switch_share) + at.rtt_s if at.servers > 1 else 0.0
    return nvlink_seconds(nbytes, at) + between


def split(nbytes: float, servers: int, nic: float, switch_share: float) -> tuple[float, float]:
    """Returns (x, seconds): the share x for the switch at which switch and ring end together, and how long they take.

    T(x) = max((x + ρ(1−x))·M/B, x·M/S) is least at x* = min(1, ρS/(B + (ρ−1)S)). Seconds are those of the bytes alone, without latencies.
    `nbytes` on `servers`, `nic` and `switch_share` in bytes/s; a share of 0 gives the ring, an infinite one the switch alone.
    """
    if servers < 2:
        raise InputError(f"servers: found {servers}; expected at least 2, or there is nothing to send")
    if not nbytes >= 0 or math.isinf(nbytes):
        raise InputError(f"bytes: found {nbytes}; expected 0 or more")
    if not 0 < nic < math.inf:
        raise InputError(f"nic: found {nic}; expected bytes per second above 0")
    if not switch_share >= 0:
        raise InputError(f"switch_share: found {switch_share}; expected bytes per second, 0 or more")
    x = best_share(ring_factor(servers), nic, switch_share)
    return x, _both(x, nbytes, ring_factor(servers), nic, switch_share)


def best_share(rho: float, nic: float, switch_share: float) -> float:
    """Returns x* = min(1, ρS/(B + (ρ−1)S)) without checks."""
    if math.isinf(switch_share):
        return 1.0
    return min(1.0, rho * switch_share / (nic + (rho - 1.0) * switch_share))


def hybrid_seconds(nbytes: float, at: Shape, switch_share: float, x: float | None = None) -> float:
    """Returns the seconds of NVLink and then x of the bytes through the switch and the rest round the ring at once; x* unless given."""
    if at.servers == 1:
        return nvlink_seconds(nbytes, at)
    rho = ring_factor(at.servers)
    x = best_share(rho, at.nic, switch_share) if x is None else x
    latency = max(at.rtt_s if x > 0 else 0.0, at.ring_s if x < 1 else 0.0)
    return nvlink_seconds(nbytes, at) + _both(x, nbytes, rho, at.nic, switch_share) + latency


def _both(x: float, nbytes: float, rho: float, nic: float, switch_share: float) -> float:
    through = x * nbytes / switch_share if x > 0 else 0.0
    return max((x + rho * (1.0 - x)) * nbytes / nic, through)


def _least(nic: float, switch_share: float) -> float:
    if not switch_share > 0:
        raise InputError(f"switch_share: found {switch_share}; expected bytes per second above 0: without slots nothing passes the switch")
    return min(nic, switch_share)
