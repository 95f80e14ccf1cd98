"""UGAL-G: UGAL that knows the true queues of global channels that other routers of the group own.

No router can know them, so this is an ideal and not a bound: it looks at one random detour only.

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
    """The next hop; at the source, of the path with less queue times hops, where queues are true."""
    if undecided(s, p):
        done, channel = settled(s, r, p)
        if not done:
            chosen(s, r, p, channel, 0, s.settings[0], True)
    return follow(s, r, p)


@dataclass(frozen=True)
class UgalG(Routing):
    """Minimal or Valiant by true queues."""

    threshold: float = parameter(0.0, "added to the detour's cost, in packets times hops", range=(-1e6, 1e6))

    oracle = True
    decide = decide

    def settings(self, net: Network, flits: int) -> list[int]:
        """The threshold."""
        return [scaled(self.threshold, flits)]
