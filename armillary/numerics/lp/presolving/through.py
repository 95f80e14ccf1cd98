"""Solves a program through its presolve, and never ends with a worse answer than without it.

What counts is measured on the program that was given: when the smaller program is solved to the tolerance, its solution is taken back and
its residuals and gap are computed there. Where they exceed the tolerance, the smaller program is solved more closely; where that does not
help either, the method goes on from there on the original program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..program import kkt
from ..program.problem import Array, LinearProgram, Solution, Status
from .reduction import Reduction, reduced

#: How often a solution of the smaller program may fail on the original one, and the factor of the tolerance after each failure.
_FAILURES, _CLOSER = 6, 0.25
#: The iterations after which a point is first taken back although the smaller program is not solved yet, and how much later each next time.
_FIRST, _LATER = 2000, 1.2


@dataclass
class Check:
    """What a solution of the smaller program is worth on the original one; it keeps the last point that it looked at."""

    lp: LinearProgram
    reduction: Reduction
    tolerance: float
    #: The tolerance that the smaller program is to be solved to from now on.
    inner: float
    failures: int = 0
    #: The iteration from which an unsolved point is worth a look.
    due: float = _FIRST
    point: tuple[Array, Array] | None = None
    errors: kkt.Errors | None = None

    def holds(self, x: Array, y: Array) -> bool:
        """Says whether the point, taken back, meets the tolerance."""
        self.point = self.reduction.restore(x, y)
        self.errors = kkt.errors(self.lp, *self.point)
        return self.errors.worst <= self.tolerance

    def ends(self, worst: float, iterations: int, point: Callable[[], tuple[Array, Array]]) -> bool:
        """Says whether the method is done with the smaller program, on which its largest error is `worst`.

        The two programs measure errors by different norms, so an unsolved point is looked at now and then, too.
        """
        solved = worst <= self.inner
        if not solved and iterations < self.due:
            return False
        self.due = _LATER * iterations
        if self.holds(*point()):
            return True
        if solved:
            self.failures += 1
            self.inner *= _CLOSER
        return self.failures >= _FAILURES


#: Solves a program from a point, in at most so many iterations; a check of the smaller program decides where it ends.
Solver = Callable[[LinearProgram, tuple[Array, Array] | None, int, Check | None], Solution]


def solved_through_presolve(lp: LinearProgram, how: str, tolerance: float, most: int, solve: Solver) -> Solution:
    """Returns the solution of `lp`, which `solve` finds on the program that the presolve `how` leaves."""
    reduction = reduced(lp, how)
    small = reduction.program
    if small is None:
        found = solve(lp, None, most, None)
        if found.status == "limit" and reduction.finding in ("infeasible", "unbounded"):
            found = replace(found, status=reduction.finding)
        return found
    check = Check(lp, reduction, tolerance, tolerance)
    inside = solve(small, None, most, check)
    if inside.status in ("infeasible", "unbounded"):
        # The proof is to hold on the program that was given, so it is looked for there.
        found = solve(lp, None, most, None)
        return replace(found, status=inside.status) if found.status == "limit" else found
    check.holds(inside.x, inside.y)
    assert check.point is not None
    assert check.errors is not None
    here = _taken_back(lp, inside, check)
    left = most - inside.iterations
    if check.errors.worst <= tolerance or left <= 0:
        return here
    further = solve(lp, check.point, left, None)
    total = inside.iterations + further.iterations
    if further.status == "limit" and _worst(here) <= _worst(further):
        return replace(here, iterations=total)
    moved = further.history + np.array([inside.iterations, 0.0, 0.0, 0.0])
    return replace(further, iterations=total, history=np.concatenate([inside.history, moved]))


def _worst(found: Solution) -> float:
    return max(found.primal_residual, found.dual_residual, found.gap)


def _taken_back(lp: LinearProgram, inside: Solution, check: Check) -> Solution:
    assert check.point is not None
    assert check.errors is not None
    x, y = check.point
    errors = check.errors
    history = inside.history.copy()
    if len(history):
        history[-1, 1:] = errors.primal, errors.dual, errors.gap
    status: Status = "optimal" if errors.worst <= check.tolerance else "limit"
    return replace(
        inside, status=status, x=x, y=y, objective=lp.objective(x), primal_residual=errors.primal, dual_residual=errors.dual,
        gap=errors.gap, history=history,
    )  # fmt: skip
