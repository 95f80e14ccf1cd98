"""Cloud-like: one instance of each service, as central as possible.

It is the cost end of the trade: the cheapest placement there is, unless storage, cores or deadlines force more instances.

The 1-median: Optimum locations of switching centers, Operations Research 1964.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique

from .planning.state import State
from .problem.plan import Plan
from .problem.problem import Problem


@dataclass(frozen=True)
class CloudLike(Technique):
    """Places each service once, at the 1-median of all requests or as near to it as storage and cores allow."""

    def solve(self, problem: Problem) -> Plan:
        """The plan for a problem; services come by decreasing load, and what one instance cannot carry is opened where it adds least."""
        state = State(problem)
        median = int((problem.weight[:, None] * problem.access).sum(0).argmin())
        near = np.argsort(problem.distance[median], kind="stable").tolist()
        load = np.bincount(problem.chain, problem.need, len(problem.services))
        left = problem.room.copy()
        for m in sorted(problem.used.tolist(), key=lambda m: (-load[m], m)):
            able = [k for k in near if state.fits(m, k)]
            k = next((k for k in able if left[k] >= load[m]), max(able, key=lambda k: left[k], default=None))
            if k is not None:
                state.put(m, int(k))
                left[k] -= load[m]
        state.settle()
        return state.plan()
