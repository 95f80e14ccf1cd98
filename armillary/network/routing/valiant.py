"""Valiant routing: every packet for another group goes by way of a random third group, so any traffic becomes uniform.

A pattern that would crush one channel is spread over all, at the price of twice the load: no traffic is accepted beyond about one half.
With `to = "router"` the packet visits a random router of the intermediate group, which also spreads load over its local links. Packets
inside a group go directly.

A Scheme for Fast Parallel Communication, SIAM Journal on Computing 11(2), 1982; on Dragonflies: Technology-Driven, Highly-Scalable
Dragonfly Topology, ISCA 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from armillary.arena import parameter
from armillary.kernels import part

from .fabric.network import Network
from .simulation.choices import drawn_detour
from .simulation.paths import ROUTING, below, follow, settled, undecided
from .simulation.routing import Routing
from .simulation.state import DETOUR, FIRST, MIDDLE, PEER_GROUP, TAG


@part
def decide(s, r, p):  # type: ignore[no-untyped-def]
    """The next hop by way of a random group."""
    if undecided(s, p):
        done, channel = settled(s, r, p)
        if not done:
            drawn_detour(s, r, p, channel)
            if s.settings[0] and s.packet[p, TAG] == DETOUR:
                group = s.port[s.packet[p, FIRST], PEER_GROUP]
                begin = s.member_start[group]
                s.packet[p, MIDDLE] = s.members[begin + below(s, ROUTING, np.int64(s.member_start[group + 1] - begin))]
    return follow(s, r, p)


@dataclass(frozen=True)
class Valiant(Routing):
    """Detours only."""

    to: Literal["group", "router"] = parameter("group", "what is drawn: a group, or a router that the packet then visits")

    decide = decide

    def settings(self, net: Network, flits: int) -> list[int]:
        """Whether a router is visited."""
        return [int(self.to == "router")]
