"""Latency-min: every pod gets the longest action of LACE-RL's menu, which is the best one if only latency counts.

The menu ends at 600 s, so its figures are those of static-600.
It is one of the two extremes between which LACE-RL trades (arXiv 2602.23935, 2026).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .simulation.decisions import FIXED
from .simulation.play import Policy
from .simulation.reuse import ACTIONS
from .workload import KeepAliveWork


@dataclass(frozen=True)
class LatencyMin(Technique):
    """The longest action."""

    weighs = False

    def policy(self, work: KeepAliveWork) -> Policy:
        """The longest keep-alive of the menu for every pod."""
        return Policy(FIXED, keep_s=max(ACTIONS))
