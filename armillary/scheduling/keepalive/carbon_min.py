"""Carbon-min: every pod gets the shortest action of LACE-RL's menu, which is the best one if only carbon counts.

The menu begins at 0 s, so its figures are those of none.
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
class CarbonMin(Technique):
    """The shortest action."""

    weighs = False

    def policy(self, work: KeepAliveWork) -> Policy:
        """The shortest keep-alive of the menu for every pod."""
        return Policy(FIXED, keep_s=min(ACTIONS))
