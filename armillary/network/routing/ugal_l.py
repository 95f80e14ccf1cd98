"""UGAL-L: take the minimal path unless its queue is so much longer than that of one random detour that the detour is faster.

The source router compares q_min·H_min with q_val·H_val + T. A queue q is what the router itself sees: flits that wait for the first port of
the path, and credits of that port in use. H are the hops of the two concrete paths. If the full channel belongs to another router,
only the backpressure through the local link tells of it, which is late.

Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import parameter
from armillary.kernels import part

from .fabric.network import Network
from .simulation.choices import chosen
from .simulation.paths import follow, settled, undecided
from .simulation.routing import Routing, scaled


@part
def decide(s, r, p):  # type: ignore[no-untyped-def]
    """The next hop; at the source, of the path with less queue times hops."""
    if undecided(s, p):
        done, channel = settled(s, r, p)
        if not done:
            chosen(s, r, p, channel, 0, s.settings[0], False)
    return follow(s, r, p)


@dataclass(frozen=True)
class UgalL(Routing):
    """Minimal or Valiant by local queues."""

    threshold: float = parameter(0.0, "added to the detour's cost, in packets times hops", range=(-1e6, 1e6))

    decide = decide

    def settings(self, net: Network, flits: int) -> list[int]:
        """The threshold."""
        return [scaled(self.threshold, flits)]
