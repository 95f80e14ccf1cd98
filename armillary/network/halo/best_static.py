"""The best static protocol of each case, found by trying them: what a person with time could choose beforehand.

It knows the result and is no baseline. Brute force over two protocols between nodes and four inside them, after the static protocols of
MPI libraries (Cooperative rendezvous protocols for improved performance and overlap, SC 2018). The quick ones to simulate come first, and
a play ends as soon as its NICs or cores have more left to move than the best so far took in all; that changes no result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .protocols import Chosen
from .static_protocol import StaticProtocol

if TYPE_CHECKING:
    from .patterns.pattern import Pattern
    from .simulation.machine import Machine
    from .simulation.plans import Planner
    from .simulation.play import Played

#: (protocol inside a node, bytes of a piece)
NEAR = (("read", 65536), ("shared-copy", 65536), ("shm", 0), ("loopback", 0))
#: A copy through cells is some hundred events per message, so these are tried last.
_LAST = "shm"


@dataclass(frozen=True)
class BestStatic(Chosen):
    """The best of eight static protocols."""

    oracle: ClassVar[bool] = True

    def planner(self, pattern: Pattern, machine: Machine) -> Planner:
        """The planner of the quickest one."""
        return self._quickest(pattern, machine)[0]

    def played(self, pattern: Pattern, machine: Machine) -> Played:
        """What the quickest one takes."""
        return self._quickest(pattern, machine)[1]

    def _quickest(self, pattern: Pattern, machine: Machine) -> tuple[Planner, Played]:
        """The first of those that take least, with its play."""
        from .simulation.least import CannotWin, Least
        from .simulation.machine import CLUSTER, machine_of
        from .simulation.play import play

        # Short messages go with their data under every protocol, so some of the eight may be the same for this pattern.
        several = list(dict.fromkeys(
            StaticProtocol(far, near, chunk, first=True).needed(pattern)
            for far in ("rget", "rput-cached") for near, chunk in NEAR
        ))  # fmt: skip
        real, best, found = machine_of(CLUSTER), math.inf, {}
        for one in sorted(several, key=lambda one: one.near == _LAST):
            planner = one.planner(pattern, machine)
            least = Least(pattern, planner, real, best * pattern.iterations)
            if least.hopeless:
                continue
            try:
                found[one] = planner, play(pattern, planner, least=least)
            except CannotWin:
                continue
            best = min(best, found[one][1].seconds)
        return next(found[one] for one in several if one in found and found[one][1].seconds == best)
