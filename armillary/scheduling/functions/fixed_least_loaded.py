"""The owner's size on the least loaded node, first come, first served: what Knative on Kubernetes does.

A call goes to a warm pod if there is one on a node with room, otherwise to the node with the largest share of free cores.

Kubernetes is described in Borg, Omega, and Kubernetes, ACM Queue 2016; its default score prefers the least allocated node.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .planning.policy import Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class FixedLeastLoaded(Technique):
    """The owner's size, spread over the nodes."""

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Policy()
