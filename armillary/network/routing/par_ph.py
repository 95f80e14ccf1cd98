"""PAR-PH: progressive adaptive routing that weighs queues with the hops that each concrete path has left.

It is PAR except at the second look, where only the hops from there on count, so that the minimal path counts one or two hops. The name is
one of the rivals in PIAR's abstract (IEEE CLUSTER 2025); the mechanism is our reading of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import parameter

from .fabric.network import Network
from .par import decide
from .simulation.routing import Routing, scaled


@dataclass(frozen=True)
class ParPh(Routing):
    """PAR with remaining hops."""

    threshold: float = parameter(0.0, "added to the detour's cost, in packets times hops", range=(-1e6, 1e6))

    decide = decide

    def settings(self, net: Network, flits: int) -> list[int]:
        """The threshold; no hops are counted as taken."""
        return [scaled(self.threshold, flits), 0]
