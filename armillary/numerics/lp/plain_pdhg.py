"""PDHG in exact arithmetic, by the very loop that runs in memory: what noise costs is the difference.

Chambolle, Pock: A first-order primal-dual algorithm for convex problems with applications to imaging. 2011. Restarts to the average:
Applegate and others, Practical large-scale linear programming using primal-dual hybrid gradient (PDLP). 2021.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from . import analog_loop
from .method import Method
from .problem import LinearProgram, Solution
from .scaled import norm2, scaled


@dataclass(frozen=True)
class Pdhg(Method):
    """Restarted averaged PDHG, exact."""

    tolerance: float = field(default=1e-4, metadata={"doc": "relative residuals and gap that end it", "range": (1e-12, 0.1)})
    most: int = field(default=200_000, metadata={"doc": "most iterations", "range": (1, None)})
    ray_tolerance: float = field(
        default=1e-8, metadata={"doc": "what a proof of infeasibility may lack, of its value", "range": (0.0, 1.0)}
    )

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
