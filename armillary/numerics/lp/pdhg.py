"""PDHG in exact arithmetic, by the same loop that runs in memory, so that the difference shows what noise costs.

Chambolle, Pock: A first-order primal-dual algorithm for convex problems with applications to imaging. 2011. Restarts to the average:
Applegate and others, Practical large-scale linear programming using primal-dual hybrid gradient (PDLP). 2021.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from armillary.parameters import parameter

from .first_order import analog_loop
from .first_order.scaled import norm2, scaled
from .program.method import Method
from .program.problem import LinearProgram, Solution


@dataclass(frozen=True)
class Pdhg(Method):
    """Restarted averaged PDHG in exact arithmetic."""

    tolerance: float = parameter(1e-4, "relative residuals and gap at which the method stops", range=(1e-12, 0.1))
    most: int = parameter(200_000, "the largest number of iterations", range=(1, None))
    ray_tolerance: float = parameter(1e-8, "largest violation of a proof of infeasibility, relative to its value", range=(0.0, 1.0))

    def solve(self, lp: LinearProgram) -> Solution:
        start = time.perf_counter()
        quick = self.without_rows_or_columns(lp)
        if quick is not None:
            return quick
        p = scaled(lp, norms=False)
        norm = 1.001 * norm2(p, self.rng)
        a, t = p.matrix, p.transposed
        found = analog_loop.run(lp, p, a.__matmul__, t.__matmul__, norm, self.tolerance, self.most, self.ray_tolerance, stall=False)
        return self.solution(lp, found.status, found.x, found.y, found.errors, found.iterations, start, found.ray, found.history)
