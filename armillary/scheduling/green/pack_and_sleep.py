"""Bin packing, with nodes that sleep: a node without pods is switched off after ten minutes and wakes when a pod finds no other room.

What cluster autoscalers do: MostAllocated, and nodes that are unneeded for ten minutes go (the default of Kubernetes' Cluster Autoscaler,
2025).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .simulation.policy import MOST, Policy
from .workload import GreenWork


@dataclass(frozen=True)
class PackAndSleep(Technique):
    """MostAllocated, and idle nodes sleep."""

    idle_off: int = parameter(10, "minutes after which a node without pods is switched off", range=(0, 1440))

    def policy(self, work: GreenWork) -> Policy:
        """The rules that the play follows."""
        return Policy(place=MOST, sleep=True, idle_off=self.idle_off)
