"""HiGHS's dual simplex method, through SciPy: an exact solver, whose optimum the arena takes as the reference.

Huangfu, Hall: Parallelizing the dual revised simplex method. 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

from .program.highs import solved_by_highs
from .program.method import Method
from .program.problem import LinearProgram, Solution


@dataclass(frozen=True)
class HighsSimplex(Method):
    """The dual simplex method. Huangfu, Hall: Parallelizing the dual revised simplex method. 2018."""

    def solve(self, lp: LinearProgram) -> Solution:
        return solved_by_highs(self, lp, "highs-ds")
