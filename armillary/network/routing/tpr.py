"""TPR: counters at the links tell the traffic pattern, and the pattern biases UGAL.

Each router counts the packets that its nodes create for each other group over a window of 500 cycles. The concentration X is the largest
share times the number of other groups: 1 if all groups get the same, and the number of groups if one gets everything. Below 2 the pattern
counts as uniform and minimal paths get a bias of 25; above 4 it counts as adversarial and detours get it; between, UGAL-L decides.
The idea is the paper's; the windows, the concentration and the biases are our reading.

TPR: Traffic Pattern-Based Adaptive Routing for Dragonfly Networks, IEEE TMSCS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import parameter
from armillary.kernels import part

from .fabric.network import Network
from .simulation.choices import chosen
from .simulation.paths import follow, settled, undecided
from .simulation.routing import Routing, scaled
from .simulation.state import CYCLE, DST_GROUP

_BIAS, _WINDOW, _LOW, _HIGH = range(4)


@part
def tick(s):  # type: ignore[no-untyped-def]
    """At the end of a window, every router judges its pattern: 1 uniform, −1 adversarial, 0 between."""
    if s.n[CYCLE] % s.settings[_WINDOW] != 0:
        return
    groups = len(s.member_start) - 1
    routers = len(s.group)
    for r in range(routers):
        most, total = 0, 0
        for group in range(groups):
            count = s.own[routers + r * groups + group]
            s.own[routers + r * groups + group] = 0
            most = max(most, count)
            total += count
        concentration = 1000 * most * (groups - 1)
        if total == 0:
            s.own[r] = 0
        elif concentration < s.settings[_LOW] * total:
            s.own[r] = 1
        elif concentration > s.settings[_HIGH] * total:
            s.own[r] = -1
        else:
            s.own[r] = 0


@part
def decide(s, r, p):  # type: ignore[no-untyped-def]
    """The next hop; at the source, by UGAL with the bias of the router's pattern."""
    if undecided(s, p):
        done, channel = settled(s, r, p)
        if not done:
            groups = len(s.member_start) - 1
            s.own[len(s.group) + r * groups + s.packet[p, DST_GROUP]] += 1
            chosen(s, r, p, channel, 0, s.own[r] * s.settings[_BIAS], False)
    return follow(s, r, p)


@dataclass(frozen=True)
class Tpr(Routing):
    """UGAL-L, biased by the traffic pattern that each router sees."""

    bias: float = parameter(25.0, "bias for or against minimal paths, in packets times hops", range=(0.0, 1e6))
    window: int = parameter(500, "cycles of a window", range=(1, 1_000_000))
    uniform_below: float = parameter(2.0, "concentration below which traffic counts as uniform", range=(0.0, 1e6))
    adversarial_above: float = parameter(4.0, "concentration above which it counts as adversarial", range=(0.0, 1e6))

    decide, tick = decide, tick

    def settings(self, net: Network, flits: int) -> list[int]:
        """The parameters; concentrations in thousandths."""
        return [scaled(self.bias, flits), self.window, round(1000 * self.uniform_below), round(1000 * self.adversarial_above)]

    def memory(self, net: Network) -> tuple[int, int]:
        """The pattern of each router, and its counters by group."""
        return net.routers * (1 + net.groups), 0
