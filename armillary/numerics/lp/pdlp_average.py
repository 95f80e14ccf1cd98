"""PDLP: adaptive steps, and restarts to the average.

Applegate, Díaz, Hinder, Lu, Lubin, O'Donoghue, Schudy: Practical large-scale linear programming using primal-dual hybrid gradient. 2021.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from armillary.parameters import parameter

from .first_order import steps
from .first_order.scaled import scaled, sides
from .first_order.sums import length
from .presolving.reduction import CHOICES
from .presolving.through import Check, solved_through_presolve
from .program import kkt
from .program.method import PRESOLVE, Method
from .program.problem import Array, LinearProgram, Solution, Status

LOOK = 64
_SUFFICIENT, _NECESSARY, _LONG = 0.2, 0.8, 0.36


@dataclass(frozen=True)
class PdlpAverage(Method):
    """Adaptive steps, restarted from the average or the last point, whichever is better."""

    tolerance: float = parameter(1e-6, "relative residuals and gap at which the method stops", range=(1e-12, 0.1))
    most: int = parameter(1_000_000, "the largest number of iterations", range=(1, None))
    ray_tolerance: float = parameter(1e-8, "largest violation of a proof of infeasibility, relative to its value", range=(0.0, 1.0))
    presolve: str = parameter("auto", PRESOLVE, choices=CHOICES)

    def solve(self, lp: LinearProgram) -> Solution:
        start = time.perf_counter()
        quick = self.without_rows_or_columns(lp)
        if quick is not None:
            return quick
        found = solved_through_presolve(lp, self.presolve, self.tolerance, self.most, self._by_steps)
        return replace(found, seconds=time.perf_counter() - start)

    def _by_steps(self, lp: LinearProgram, near: tuple[Array, Array] | None, most: int, check: Check | None) -> Solution:
        """Takes steps on this very program until it is solved, or until `check` says that it is of no use to go on."""
        start = time.perf_counter()
        quick = self.without_rows_or_columns(lp)
        if quick is not None:
            return quick
        p = scaled(lp, norms=False)
        a, t = p.matrix, p.transposed
        m, n = a.shape
        x, y = np.zeros(n), np.zeros(m)
        if near is not None:
            x, y = p.inside(*near)
        x = np.clip(x, p.lower, p.upper)
        eta = 1.0 / float(np.abs(a.data).max(initial=0.0) or 1.0)
        cost, right = length(p.cost), length(sides(p.row_lower, p.row_upper))
        omega = cost / right if min(cost, right) > 1e-10 else 1.0
        sx, sy, weight, tries, total, since = np.zeros(n), np.zeros(m), 0.0, 0, 0, 0
        xt, yt, grad = np.empty(n), np.empty(m), t @ y
        first, at_restart, before = (x.copy(), y.copy()), np.inf, np.inf
        history: list[tuple[float, float, float, float]] = []
        status: Status = "limit"
        ray = None
        while total < most:
            old = x.copy(), y.copy()
            eta, weight, tries = steps.adaptive(
                LOOK, tries, eta, omega, x, y, sx, sy, weight, xt, yt, *steps.unsigned(a), *steps.unsigned(t), p.cost,
                p.row_lower, p.row_upper, p.lower, p.upper, grad,
            )  # fmt: skip
            total, since = total + LOOK, since + LOOK
            candidates = [(sx / weight, sy / weight), (x, y)]
            points = [p.original(*c) for c in candidates]
            found = [kkt.errors(lp, *point) for point in points]
            which = int(found[1].worst < found[0].worst)
            error = found[which]
            history.append((total, error.primal, error.dual, error.gap))
            if check is None and error.worst <= self.tolerance:
                status = "optimal"
                break
            if check is not None and check.ends(error.worst, total, lambda point=points[which]: point):  # type: ignore[misc]
                break
            move = p.original(x - old[0], y - old[1])
            rays = [d for d in (points[1][1], move[1]) if kkt.proves_infeasible(lp, d, self.ray_tolerance)]
            lines = [d for d in (points[1][0], move[0]) if kkt.proves_unbounded(lp, d, self.ray_tolerance)]
            if rays or lines:
                status, ray = ("infeasible", rays[0]) if rays else ("unbounded", lines[0])
                ray = ray / np.abs(ray).max()
                break
            at_restart = min(at_restart, 1e300) if np.isfinite(at_restart) else error.worst
            grows = error.worst <= _NECESSARY * at_restart and error.worst > before
            if error.worst <= _SUFFICIENT * at_restart or grows or since >= _LONG * total:
                x, y = candidates[which][0].copy(), candidates[which][1].copy()
                moved_x, moved_y = (length(now - then) for now, then in zip((x, y), first))
                if min(moved_x, moved_y) > 1e-10:
                    omega = math.exp(0.5 * math.log(moved_y / moved_x) + 0.5 * math.log(omega))
                sx, sy, weight, since, grad = np.zeros(n), np.zeros(m), 0.0, 0, t @ y
                first, at_restart, before = (x.copy(), y.copy()), error.worst, np.inf
            else:
                before = error.worst
        return self.solution(lp, status, *points[which], error, total, start, ray, history)
