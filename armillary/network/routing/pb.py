"""Piggyback: routers tell the others of their group, one bit per global channel, which of their channels are congested.

A channel is congested if its queue is above twice the mean of the group's channels plus 3 packets. A packet whose minimal channel has its
bit set takes a detour; otherwise UGAL-L decides. The bits are sent every 10 cycles and travel for one local latency. The form of the bit
follows the paper, with the mean over the group.

Indirect Adaptive Routing on Large Scale Interconnection Networks, ISCA 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import parameter
from armillary.kernels import part

from .fabric.network import Network
from .simulation.choices import chosen, drawn_detour
from .simulation.paths import follow, queued, settled, undecided
from .simulation.routing import Routing, scaled
from .simulation.status import KNOWN, SENT, due

_THRESHOLD, _FACTOR, _MARGIN = range(3)


@part
def tick(s):  # type: ignore[no-untyped-def]
    """Sends the bits when they are due."""
    if not due(s):
        return
    groups = len(s.member_start) - 1
    for group in range(groups):
        begin, end = s.channel_start[group * groups], s.channel_start[(group + 1) * groups]
        total = 0
        for i in range(begin, end):
            total += queued(s, s.channels[i])
        for i in range(begin, end):
            above = queued(s, s.channels[i]) - s.settings[_MARGIN]
            s.status[s.channels[i], SENT] = 1000 * above * (end - begin) > s.settings[_FACTOR] * total


@part
def decide(s, r, p):  # type: ignore[no-untyped-def]
    """The next hop; at the source, a detour where the minimal channel is said to be congested."""
    if undecided(s, p):
        done, channel = settled(s, r, p)
        if not done:
            if s.status[channel, KNOWN]:
                drawn_detour(s, r, p, channel)
            else:
                chosen(s, r, p, channel, 0, s.settings[_THRESHOLD], False)
    return follow(s, r, p)


@dataclass(frozen=True)
class Pb(Routing):
    """UGAL-L with one bit per global channel from its owner."""

    threshold: float = parameter(0.0, "added to the detour's cost, in packets times hops", range=(-1e6, 1e6))
    factor: float = parameter(2.0, "a channel is congested above so many times the group's mean queue …", range=(0.0, 1000.0))
    margin: float = parameter(3.0, "… plus so many packets", range=(0.0, 1e6))
    period: int = parameter(0, "cycles between two exchanges; 0 for the local latency, which is the least", range=(0, 1_000_000))

    decide, tick = decide, tick

    def settings(self, net: Network, flits: int) -> list[int]:
        """The thresholds; the factor in thousandths."""
        return [scaled(self.threshold, flits), round(1000 * self.factor), scaled(self.margin, flits)]

    def status_cycles(self, net: Network) -> int:
        """The period, at least the local latency."""
        return max(self.period, int(net.latency[~net.is_global].max(initial=1)))
