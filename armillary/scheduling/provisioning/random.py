"""Random: the best of many placements drawn at random, each routed and repaired as all others are.

It is a floor for every search, as in: Random search for hyper-parameter optimization, JMLR 2012.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .planning.state import State
from .problem.plan import Plan
from .problem.problem import Problem


@dataclass(frozen=True)
class Random(Technique):
    """Draws placements and keeps the one with the lowest objective."""

    draws: int = parameter(20, "placements that are drawn", range=(1, 100_000))

    def solve(self, problem: Problem) -> Plan:
        """The plan for a problem."""
        best: State | None = None
        for _ in range(self.draws):
            state = State(problem)
            for m in self.rng.permutation(problem.used).tolist():
                for k in self.rng.permutation(len(problem.nodes))[: int(self.rng.integers(1, len(problem.nodes) + 1))].tolist():
                    if state.fits(m, k):
                        state.put(m, k)
            state.settle()
            if best is None or (len(state.troubled), state.objective) < (len(best.troubled), best.objective):
                best = state
        assert best is not None
        return best.plan()
