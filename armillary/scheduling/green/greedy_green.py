"""Without a forecast: a pod that may wait starts as soon as the sun gives more than the cluster takes, or when it can wait no longer.

Bin packing and sleeping nodes as in pack-and-sleep. A scheduler that watches a meter only, after GreenSlot: Scheduling energy consumption
in green datacenters, SC 2011, without its forecast.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .simulation.policy import MOST, SURPLUS, Policy
from .workload import GreenWork


@dataclass(frozen=True)
class GreedyGreen(Technique):
    """Starts pods that may wait while there is power to spare."""

    idle_off: int = parameter(10, "minutes after which a node without pods is switched off", range=(0, 1440))

    def policy(self, work: GreenWork) -> Policy:
        """The rules that the play follows."""
        return Policy(place=MOST, when=SURPLUS, sleep=True, idle_off=self.idle_off)
