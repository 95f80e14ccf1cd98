"""Local search: start from joint greedy's plan and apply SoCL's serial moves until none helps.

It separates what SoCL's partition and its merging of groups bring from what any local search would find.

Local search heuristics for k-median and facility location problems, STOC 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .joint_greedy import best_greedy
from .planning.moves import search
from .problem.plan import Plan
from .problem.problem import Problem


@dataclass(frozen=True)
class LocalSearch(Technique):
    """Improves joint greedy's plan by dropping, shifting, swapping and adding instances."""

    def solve(self, problem: Problem) -> Plan:
        """The plan for a problem."""
        state = best_greedy(problem)
        search(state)
        return state.plan()
