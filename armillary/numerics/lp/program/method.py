"""The methods of every solver."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from armillary.arena import Technique

from . import kkt
from .problem import Array, LinearProgram, Solution, Status

#: The description of the parameter by which a method is told how to presolve.
PRESOLVE = "how the program is made smaller first: HiGHS's presolve, the light one, the better that is installed, or not at all"


class Method(Technique):
    """One way to solve a linear program. Subclasses are frozen dataclasses whose fields are the parameters."""

    def solve(self, lp: LinearProgram) -> Solution:
        """Solves the program, or says why there is no solution."""
        raise NotImplementedError

    def solution(
        self,
        lp: LinearProgram,
        status: Status,
        x: Array,
        y: Array,
        errors: kkt.Errors,
        iterations: int,
        start: float,
        ray: Array | None = None,
        history: Sequence[tuple[float, float, float, float]] = (),
    ) -> Solution:
        """Returns a solution from its parts; `start` is when solving began, by `time.perf_counter`."""
        return Solution(
            status,
            x,
            y,
            lp.objective(x),
            iterations,
            time.perf_counter() - start,
            errors.primal,
            errors.dual,
            errors.gap,
            ray,
            np.array(history).reshape(-1, 4),
            type(self).__name__,
        )

    def without_rows_or_columns(self, lp: LinearProgram) -> Solution | None:
        """Returns the answer to a program that has no rows or no columns, or None where it has both."""
        m, n = lp.shape
        if m and n:
            return None
        start = time.perf_counter()
        y = np.zeros(m)
        if not n:
            infeasible = (lp.row_lower > 0) | (lp.row_upper < 0)
            if infeasible.any():
                ray = np.where(lp.row_lower > 0, 1.0, np.where(lp.row_upper < 0, -1.0, 0.0))
                return self.solution(lp, "infeasible", np.zeros(0), y, kkt.errors(lp, np.zeros(0), y), 0, start, ray)
            return self.solution(lp, "optimal", np.zeros(0), y, kkt.errors(lp, np.zeros(0), y), 0, start)
        x = np.where(lp.cost > 0, lp.lower, np.where(lp.cost < 0, lp.upper, np.clip(0.0, lp.lower, lp.upper)))
        if not np.isfinite(x).all():
            ray = np.where(np.isfinite(x), 0.0, -np.sign(lp.cost))
            x = np.where(np.isfinite(x), x, 0.0)
            return self.solution(lp, "unbounded", x, y, kkt.errors(lp, x, y), 0, start, ray)
        return self.solution(lp, "optimal", x, y, kkt.errors(lp, x, y), 0, start)
