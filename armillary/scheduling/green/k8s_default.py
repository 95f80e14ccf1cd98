"""kube-scheduler as it comes: the node with the most free requests (LeastAllocated), balanced between CPU and memory; no node sleeps.

NodeResourcesFit with LeastAllocated and NodeResourcesBalancedAllocation, weight 1 each: kube-scheduler's default profile (Kubernetes 1.35,
2025).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .simulation.policy import LEAST, Policy
from .workload import GreenWork


@dataclass(frozen=True)
class K8sDefault(Technique):
    """LeastAllocated, and all nodes stay on."""

    def policy(self, work: GreenWork) -> Policy:
        """The rules that the play follows."""
        return Policy(place=LEAST)
