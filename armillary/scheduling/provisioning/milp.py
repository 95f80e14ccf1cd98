"""The exact solver: HiGHS on the integer program, for the optimum or, after the time limit, the best plan and the best bound.

`milp-10` is the same stopped at a proved gap of 10 %, which is the fair rival in time of a heuristic that may be 10 % off.

HiGHS: Parallelizing the dual revised simplex method, Mathematical Programming Computation 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import NotForThisCase, Technique, parameter
from armillary.timing import Stopwatch

from .problem.ilp import integer_program, variables
from .problem.plan import Plan
from .problem.problem import Problem

#: Variables beyond which HiGHS is not asked: it would not solve the first relaxation in minutes.
MOST_VARIABLES = 300_000
LIMIT_S = 5.0


@dataclass(frozen=True, eq=False)
class Solved:
    """What HiGHS found: a plan if there is one, a bound on every plan's objective, whether it proved the gap, and its seconds."""

    plan: Plan | None
    bound: float
    proved: bool
    seconds: float


@dataclass(frozen=True)
class Milp(Technique):
    """Solves the integer program with HiGHS."""

    gap: float = parameter(0.0, "relative gap at which HiGHS may stop; 0 asks for the optimum", range=(0.0, 1.0))
    limit_s: float | None = parameter(None, "seconds after which HiGHS stops; none takes the case's", range=(0.01, 1e6))

    def solve(self, problem: Problem, limit_s: float = LIMIT_S) -> Plan:
        """The plan for a problem, or `NotForThisCase` if HiGHS finds none."""
        found = solved(problem, self.gap, limit_s if self.limit_s is None else self.limit_s)
        if found.plan is None:
            raise NotForThisCase(f"HiGHS found no plan within {limit_s:g} s; its bound is {found.bound:.4g}")
        return found.plan


def solved(problem: Problem, gap: float = 0.0, limit_s: float = LIMIT_S) -> Solved:
    """Runs HiGHS through SciPy; problems of more than 300,000 variables get the simple bound at once."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    if variables(problem) > MOST_VARIABLES:
        return Solved(None, problem.simple_bound, False, 0.0)
    with Stopwatch() as watch:
        program = integer_program(problem)
        whole = np.zeros(len(program.cost), np.int64)
        whole[: program.whole] = 1
        options: Any = {"time_limit": limit_s} | ({"mip_rel_gap": gap} if gap else {})
        found = milp(
            program.cost, integrality=whole, constraints=LinearConstraint(program.matrix, program.low, program.high),
            bounds=Bounds(0, program.upper), options=options,
        )  # fmt: skip
    plan = None if found.x is None else program.plan(found.x)
    bound = problem.simple_bound
    if found.mip_dual_bound is not None and np.isfinite(found.mip_dual_bound):
        bound = max(bound, float(found.mip_dual_bound) + program.constant)
    return Solved(plan, bound, found.status == 0, watch.seconds)
