"""Restarted reflected Halpern PDHG is the strongest first-order method for linear programs today, and the baseline to beat.

Reflected PDHG steps are averaged with the run's first point (Halpern), which gives the last point the best known rate; the run starts again
from where it is when its fixed-point error has fallen enough, and a controller sets the primal weight from how far both sides moved.

Lu, Yang: Restarted Halpern PDHG for linear programming (r²HPDHG). 2024; its controller as in cuPDLPx, 2025.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from armillary.arrays import to_host
from armillary.comm import Communicator
from armillary.parameters import parameter

from .first_order import steps
from .first_order.placement import Placed, place, placed
from .first_order.scaled import Scaled, norm2, scaled
from .first_order.sums import dot, length
from .presolving.reduction import CHOICES
from .presolving.through import Check, solved_through_presolve
from .program import kkt
from .program.method import PRESOLVE, Method
from .program.problem import Array, LinearProgram, Solution, Status

#: Steps between two looks at the errors.
LOOK = 200
#: Nonzeros from which steps run on several threads.
_MANY = 200_000
_STEP = 0.998
_SUFFICIENT, _NECESSARY, _LONG = 0.2, 0.5, 0.36
_PROPORTIONAL, _INTEGRAL, _SMOOTHING = 0.99, 0.01, 0.3


@dataclass(frozen=True)
class R2Hpdhg(Method):
    """Restarted reflected Halpern steps."""

    tolerance: float = parameter(1e-6, "relative residuals and gap at which the method stops", range=(1e-12, 0.1))
    most: int = parameter(2_000_000, "the largest number of iterations", range=(1, None))
    ray_tolerance: float = parameter(1e-8, "largest violation of a proof of infeasibility, relative to its value", range=(0.0, 1.0))
    presolve: str = parameter("auto", PRESOLVE, choices=CHOICES)

    def solve(
        self, lp: LinearProgram, near: tuple[Array, Array] | None = None, *, xp: Any = None, comm: Communicator | None = None
    ) -> Solution:
        """Solves the program, from the point (x, y) `near` where one is known, and through its presolve otherwise.

        `xp` is where steps are taken: numpy, cupy, torch, or a device of torch's; the matrix is scaled on the host and moves once.
        With `comm` every rank calls this with the same program and takes steps on its share of the rows, with one allreduce of n doubles
        per step for Aᵀy; every rank holds all of x and gets the whole solution.
        """
        start = time.perf_counter()
        quick = self.without_rows_or_columns(lp)
        if quick is not None:
            return quick
        place(xp, comm)

        def steps_on(program: LinearProgram, near: tuple[Array, Array] | None, most: int, check: Check | None) -> Solution:
            return self._by_steps(program, near, most, check, xp, comm)

        if near is not None:
            return steps_on(lp, near, self.most, None)
        found = solved_through_presolve(lp, self.presolve, self.tolerance, self.most, steps_on)
        return replace(found, seconds=time.perf_counter() - start)

    def _by_steps(
        self, lp: LinearProgram, near: tuple[Array, Array] | None, most: int, check: Check | None, xp: Any, comm: Communicator | None
    ) -> Solution:
        """Takes steps on this very program until it is solved, or until `check` says that it is of no use to go on."""
        start = time.perf_counter()
        quick = self.without_rows_or_columns(lp)
        if quick is not None:
            return quick
        problem = scaled(lp)
        here = xp is None and comm is None
        at = place(xp, comm)
        program: Any = lp if here else placed(lp, at)
        run = _Run(problem if here else placed(problem, at), self.rng)
        rows = at.range(lp.shape[0])
        column, row = (problem.column, problem.row) if here else (at.array(problem.column), at.array(problem.row[rows]))
        if near is not None:
            x, y = problem.inside(*near)
            run.begin_at(x if here else at.array(x), y if here else at.array(y[rows]))
        history: list[tuple[float, float, float, float]] = []
        status: Status = "limit"
        ray = None
        while run.total < most:
            run.advance(LOOK)
            x, y = run.xt * column, run.yt * row
            found = kkt.errors(program, x, y)
            history.append((run.total, found.primal, found.dual, found.gap))
            if check is None and found.worst <= self.tolerance:
                status = "optimal"
                break
            if check is not None and check.ends(found.worst, run.total, lambda x=x, y=y: (to_host(x), _whole(y, comm))):  # type: ignore[misc]
                break
            move_x, move_y = (run.xt - run.x) * column, (run.yt - run.y) * row
            for direction in (y, move_y, -move_y):
                if kkt.proves_infeasible(program, direction, self.ray_tolerance):
                    status, ray = "infeasible", _unit(_whole(direction, comm))
            for direction in (x, move_x, -move_x):
                if status == "limit" and kkt.proves_unbounded(program, direction, self.ray_tolerance):
                    status, ray = "unbounded", _unit(to_host(direction))
            if status != "limit":
                break
            run.restart_if_due()
        return self.solution(lp, status, to_host(x), _whole(y, comm), found, run.total, start, ray, history)


def _whole(y: Any, comm: Communicator | None) -> Array:
    """Returns a vector of rows on the host, those of all ranks."""
    mine = to_host(y)
    return mine if comm is None else comm.allgatherv(mine)


def _unit(direction: Array) -> Array:
    return direction / np.abs(direction).max()


class _Run:
    """The state between restarts, at the place of the program's vectors."""

    def __init__(self, problem: Scaled | Placed, rng: np.random.Generator) -> None:
        self._problem = problem
        self._xp = problem.xp
        self.x = self._xp.clip(self._xp.zeros_like(problem.cost), problem.lower, problem.upper)
        self.y = self._xp.zeros_like(problem.row_lower)
        self.x0, self.y0 = self.x, self.y
        self.xt, self.yt = self.x, self.y
        self._norm = norm2(problem, rng)
        self._weight = 1.0
        self._summed = 0.0
        #: Steps since the restart and in all; the fixed-point error after the restart and at the last look.
        self.k = 0
        self.total = 0
        self._first = np.inf
        self._last = np.inf

    def begin_at(self, x: Any, y: Any) -> None:
        """Starts from this point."""
        self.x, self.y = self._xp.clip(x, self._problem.lower, self._problem.upper), y
        self.x0, self.y0 = self.x, self.y

    def advance(self, count: int) -> None:
        """Takes steps; `x`, `y` are then the last point, `xt`, `yt` one plain step from it."""
        if self.k:
            self._combine()
        p = self._problem
        tau, sigma = _STEP / (self._norm * self._weight), _STEP * self._weight / self._norm
        if isinstance(p, Scaled):
            self._compiled(p, count, tau, sigma)
        else:
            self.x, self.y, self.xt, self.yt = steps.halpern_anywhere(count, self.k, tau, sigma, self.x, self.y, self.x0, self.y0, p)
        self.k += count
        self.total += count
        if self.k == count:
            self._first = self._error()

    def _compiled(self, p: Scaled, count: int, tau: float, sigma: float) -> None:
        self.x, self.y = self.x.copy(), self.y.copy()
        self.xt, self.yt = np.empty_like(self.x), np.empty_like(self.y)
        kernel: Any = steps.halpern_parallel if p.matrix.nnz > _MANY else steps.halpern_serial
        kernel(
            count, self.k, tau, sigma, self.x, self.y, self.x0, self.y0, self.xt, self.yt, np.empty_like(self.x),
            *steps.unsigned(p.matrix), *steps.unsigned(p.transposed), p.cost, p.row_lower, p.row_upper, p.lower, p.upper,
        )  # fmt: skip

    def _combine(self) -> None:
        """Takes the Halpern step that the last look had put off."""
        weight = self.k / (self.k + 1.0)
        self.x = weight * (2 * self.xt - self.x) + (1 - weight) * self.x0
        self.y = weight * (2 * self.yt - self.y) + (1 - weight) * self.y0

    def _error(self) -> float:
        """Says how far one step moves, in the norm in which steps contract."""
        dx, dy = self.xt - self.x, self.yt - self.y
        moved_y = self._problem.row_total(dot(dy, dy))
        cross = self._problem.row_total(dot(dy, self._problem.activity(dx)))
        square = self._norm / _STEP * (self._weight * dot(dx, dx) + moved_y / self._weight) + 2 * cross
        return math.sqrt(max(square, 0.0))

    def restart_if_due(self) -> None:
        """Begins a new run from the last point where the error has fallen enough, fell and grows, or the run is long."""
        error = self._error()
        due = error <= _SUFFICIENT * self._first or (error <= _NECESSARY * self._first and error > self._last)
        if due or self.k >= _LONG * self.total:
            self._reweigh()
            self.x, self.y = self.xt, self.yt
            self.x0, self.y0 = self.x, self.y
            self.k = 0
            self._last = np.inf
        else:
            self._last = error

    def _reweigh(self) -> None:
        dy = self.yt - self.y0
        moved_x, moved_y = length(self.xt - self.x0), self._problem.row_total(dot(dy, dy)) ** 0.5
        if min(moved_x, moved_y) <= 1e-10 or max(moved_x, moved_y) >= 1e10:
            return
        off = math.log(moved_y / moved_x) - math.log(self._weight)
        self._summed = _SMOOTHING * self._summed + off
        self._weight *= math.exp(_PROPORTIONAL * off + _INTEGRAL * self._summed)
