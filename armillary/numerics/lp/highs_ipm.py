"""HiGHS's interior-point method with crossover, through SciPy: an exact solver for programs on which the simplex method is slow.

Schork, Gondzio: Interior point method with basis preconditioning. 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

from .program.highs import solved_by_highs
from .program.method import Method
from .program.problem import LinearProgram, Solution


@dataclass(frozen=True)
class HighsIpm(Method):
    """The interior-point method with crossover. Schork, Gondzio: Interior point method with basis preconditioning. 2020."""

    def solve(self, lp: LinearProgram) -> Solution:
        return solved_by_highs(self, lp, "highs-ipm")
