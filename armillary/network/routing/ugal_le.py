"""UGAL-LE: from what a router itself has sent towards a channel it estimates the queue there, which it cannot see.

The wait of a path is the queue at its first port, plus, if another router owns the first global channel c, an estimate of the queue at c.
The router's own forwarding rate u towards c, a moving average with weight 1/64 per cycle, stands for all a routers of the group: max(0,
a·u − 1)·64 is what a window of so much overload leaves behind. Estimated latencies are compared, wait plus the latencies of the links,
rather than products. This is our reading of the enhanced local estimate among the rivals in PIAR's abstract (IEEE CLUSTER 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import InputError, parameter
from armillary.kernels import part

from .fabric.network import Network
from .simulation.paths import first_port, follow, go_detour, go_minimal, local_port, queued, random_detour, settled, undecided
from .simulation.routing import Routing, scaled
from .simulation.state import CYCLE, DST_ROUTER, LATENCY, PEER_ROUTER, ROUTER, SIZE

_THRESHOLD, _WINDOW = range(2)
MOST_RATES = 1 << 26


@part
def _rate(s, r, channel):  # type: ignore[no-untyped-def]
    """The router's rate towards a channel of its group, decayed to this cycle, and where it is kept."""
    at = np.int64(s.place[r]) * len(s.port) + channel
    weight = 1.0 - 1.0 / s.settings[_WINDOW]
    decay = 1.0
    passed = s.n[CYCLE] - s.own[at]
    while passed > 0:  # The power by squaring, whose bits are the same everywhere.
        if passed & 1:
            decay *= weight
        weight *= weight
        passed >>= 1
    s.real[at] *= decay
    s.own[at] = s.n[CYCLE]
    return s.real[at], at


@part
def _wait(s, r, channel):  # type: ignore[no-untyped-def]
    """The estimated wait on the way to and at a global channel, in cycles."""
    wait = float(queued(s, first_port(s, r, channel)))
    if s.port[channel, ROUTER] != r:
        group = s.group[r]
        sharing = s.member_start[group + 1] - s.member_start[group]
        rate, _ = _rate(s, r, channel)
        wait += max(0.0, sharing * rate - 1.0) * s.settings[_WINDOW]
    return wait


@part
def _local_latency(s, r, target):  # type: ignore[no-untyped-def]
    return s.port[local_port(s, r, target), LATENCY] if r != target else 0


@part
def decide(s, r, p):  # type: ignore[no-untyped-def]
    """The next hop; at the source, of the path with the least estimated latency."""
    if undecided(s, p):
        done, channel = settled(s, r, p)
        if not done:
            target = s.packet[p, DST_ROUTER]
            first, second = random_detour(s, r, p)
            taken = channel
            go_minimal(s, p, channel)
            if first >= 0:
                direct = _wait(s, r, channel) + _local_latency(s, r, s.port[channel, ROUTER]) + s.port[channel, LATENCY]
                direct += _local_latency(s, s.port[channel, PEER_ROUTER], target)
                around = _wait(s, r, first) + _local_latency(s, r, s.port[first, ROUTER]) + s.port[first, LATENCY]
                around += _local_latency(s, s.port[first, PEER_ROUTER], s.port[second, ROUTER]) + s.port[second, LATENCY]
                around += _local_latency(s, s.port[second, PEER_ROUTER], target)
                if direct > around + s.settings[_THRESHOLD]:
                    taken = first
                    go_detour(s, p, first, second)
            _, at = _rate(s, r, taken)
            s.real[at] += s.packet[p, SIZE] / s.settings[_WINDOW]
    return follow(s, r, p)


@dataclass(frozen=True)
class UgalLe(Routing):
    """Minimal or Valiant by estimated latencies."""

    threshold: float = parameter(0.0, "cycles by which a detour must be faster, per flit of a packet", range=(-1e6, 1e6))
    window: int = parameter(64, "cycles that the moving average of rates remembers", range=(2, 1_000_000))

    decide = decide

    def settings(self, net: Network, flits: int) -> list[int]:
        """The threshold and the window."""
        return [scaled(self.threshold, flits), self.window]

    def memory(self, net: Network) -> tuple[int, int]:
        """A rate and a time for every router of a group and port."""
        size = len(net.tables.router) * net.tables.local.shape[1]
        if size > MOST_RATES:
            raise InputError(f"the estimates of ugal-le would take {size:,} numbers; expected at most {MOST_RATES:,}")
        return size, size
