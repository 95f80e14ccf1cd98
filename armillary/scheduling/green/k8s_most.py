"""kube-scheduler's bin packing: the node with the fewest free requests that has room (MostAllocated); no node sleeps.

NodeResourcesFit with the MostAllocated strategy: resource bin packing (Kubernetes 1.35, 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .simulation.policy import MOST, Policy
from .workload import GreenWork


@dataclass(frozen=True)
class K8sMost(Technique):
    """MostAllocated, and all nodes stay on."""

    def policy(self, work: GreenWork) -> Policy:
        """The rules that the play follows."""
        return Policy(place=MOST)
