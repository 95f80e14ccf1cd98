"""Nearest: every service of a chain on its user's node, as long as it fits.

It is the latency end of the trade: nothing travels where storage and cores suffice, whatever it costs.

The rule is that of cloudlets: The case for VM-based cloudlets in mobile computing, IEEE Pervasive Computing 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique

from .planning.state import State
from .problem.plan import Plan
from .problem.problem import Problem


@dataclass(frozen=True)
class Nearest(Technique):
    """Places each user's services where the user is."""

    def solve(self, problem: Problem) -> Plan:
        """The plan for a problem; users come by decreasing load, and what does not fit at home is opened where it adds least."""
        state = State(problem)
        for u in np.argsort(-problem.rate, kind="stable").tolist():
            home = int(problem.access[u].argmin())
            for m in problem.chain[problem.chain_start[u] : problem.chain_start[u + 1]].tolist():
                if state.fits(m, home):
                    state.put(m, home)
        state.settle()
        return state.plan()
