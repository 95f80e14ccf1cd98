"""Static protocols: what MPI libraries do, the same for every message of a size, whatever else the node has to move.

`static-protocol` reads remote buffers after a request (rget), and receivers copy whole messages inside a node, all posted in the order of
neighbours. `static-cached` writes to remembered buffers, posts messages between nodes first, and copies in pieces. `static-shared` lets
sender and receiver copy half of each message. High performance RDMA-based MPI implementation over InfiniBand, ICS 2003
(rendezvous by RDMA); Cooperative rendezvous protocols for improved performance and overlap, SC 2018 (shared copies).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from armillary.arena import parameter

from .protocols import Chosen

if TYPE_CHECKING:
    from .patterns.pattern import Pattern
    from .simulation.machine import Machine
    from .simulation.plans import Planner


@dataclass(frozen=True)
class StaticProtocol(Chosen):
    """One protocol between nodes and one inside them."""

    far: str = parameter("rget", "the protocol between nodes", choices=("rget", "rput", "rput-cached"))
    near: str = parameter("read", "the protocol inside a node", choices=("shm", "read", "write", "shared-copy", "loopback"))
    chunk: int = parameter(0, "bytes of a piece of a copy; 0 copies whole messages", range=(0, 1 << 30))
    first: bool = parameter(False, "post messages between nodes before those inside")

    def planner(self, pattern: Pattern, machine: Machine) -> Planner:
        """The same protocols always."""
        from .simulation.plans import Fixed

        return Fixed(pattern, machine, self.far, self.near, self.chunk, 0.5, self.first)

    def needed(self, pattern: Pattern) -> StaticProtocol:
        """The same choice for this pattern, with the defaults for those messages of which it has no long ones."""
        from .simulation.machine import EAGER_FAR, EAGER_NEAR

        near = far = False
        for table in pattern.tables:
            for rank, sent in enumerate(table):
                for other, nbytes in sent:
                    inside = pattern.near(rank, other)
                    near, far = near or (inside and nbytes > EAGER_NEAR), far or (not inside and nbytes > EAGER_FAR)
        usual = StaticProtocol()
        found = self if far else replace(self, far=usual.far)
        return found if near else replace(found, near=usual.near, chunk=usual.chunk)
