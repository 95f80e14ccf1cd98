"""Progressive adaptive routing: a packet that left minimally looks once more where its channel is.

The source router decides as in UGAL-L. A packet sent over a local hop towards its minimal channel decides again at the router that owns the
channel, which sees the true queue. A detour that begins there may need a second local hop in the source group, on a virtual channel of
its own. The hops of both paths are counted from the source, the one that was taken included.

Indirect Adaptive Routing on Large Scale Interconnection Networks, ISCA 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import parameter
from armillary.kernels import part

from .fabric.network import Network
from .simulation.choices import chosen
from .simulation.paths import follow, may_reconsider, settled, undecided
from .simulation.routing import Routing, scaled
from .simulation.state import FIRST


@part
def decide(s, r, p):  # type: ignore[no-untyped-def]
    """The next hop; a choice at the source, and another one at the owner of the minimal channel."""
    if undecided(s, p):
        done, channel = settled(s, r, p)
        if not done:
            chosen(s, r, p, channel, 0, s.settings[0], False)
    elif may_reconsider(s, r, p):
        chosen(s, r, p, np.int64(s.packet[p, FIRST]), s.settings[1], s.settings[0], False)
    return follow(s, r, p)


@dataclass(frozen=True)
class Par(Routing):
    """UGAL-L with a second look in the source group."""

    threshold: float = parameter(0.0, "added to the detour's cost, in packets times hops", range=(-1e6, 1e6))

    decide = decide

    def settings(self, net: Network, flits: int) -> list[int]:
        """The threshold, and the hops that a second look counts as taken."""
        return [scaled(self.threshold, flits), 1]
