"""The best static protocol of each case, found by trying them: what a person with time could choose beforehand.

It knows the result and is no baseline. Brute force over two protocols between nodes and four inside them, after the static protocols of
MPI libraries (Cooperative rendezvous protocols for improved performance and overlap, SC 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .protocols import Chosen
from .static_protocol import StaticProtocol

if TYPE_CHECKING:
    from .patterns.pattern import Pattern
    from .simulation.machine import Machine
    from .simulation.plans import Planner

#: (protocol inside a node, bytes of a piece)
NEAR = (("read", 65536), ("shared-copy", 65536), ("shm", 0), ("loopback", 0))


@dataclass(frozen=True)
class BestStatic(Chosen):
    """The best of eight static protocols."""

    oracle: ClassVar[bool] = True

    def planner(self, pattern: Pattern, machine: Machine) -> Planner:
        """The planner of the quickest one."""
        from .simulation.play import play

        planners = [
            StaticProtocol(far, near, chunk, first=True).planner(pattern, machine)
            for far in ("rget", "rput-cached") for near, chunk in NEAR
        ]  # fmt: skip
        return min(planners, key=lambda planner: play(pattern, planner).seconds)
