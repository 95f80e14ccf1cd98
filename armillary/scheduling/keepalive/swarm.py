"""Swarm: a particle swarm chooses one keep-alive per function and hour.

Fifteen particles move over keep-alives of 0 to 600 s. Each is drawn to its own best place and to the best place of all, where the cost is
break-even's expected cost with the histogram and the carbon intensity at the first decision of the hour. The particles stay from hour to
hour, and half of them are thrown to new places each time because the grid and the load have changed.

After EcoLife: Carbon-Aware Serverless Function Scheduling for Sustainable Computing, SC 2024, which also chooses between generations of
hardware; that part has no counterpart here.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .simulation.decisions import SWARM
from .simulation.play import Policy
from .workload import KeepAliveWork


@dataclass(frozen=True)
class Swarm(Technique):
    """One keep-alive per function and hour."""

    weighs = True

    def policy(self, work: KeepAliveWork) -> Policy:
        """The swarm's best place of each hour."""
        return Policy(SWARM)
