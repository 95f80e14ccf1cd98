"""What the algorithm-level detectors see of a run: checksums, residuals, extrapolations and ranges, one row per window.

All are kept for every run, so that each technique can be judged on the same one. They look with loops that the modelled core does not
count, and at the arrays as they are, corrupted or not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..machine.processor import idle
from ..matrices.csr import Csr
from ..solvers.loops import bad_product, dot, product
from ..solvers.solver import Solver
from ..solvers.spgemm import SpGemm
from ..solvers.sssp import FAR
from ..solvers.trisolve import BLOCKS, TriSolve, bounds

Array = np.ndarray[Any, Any]
#: The columns of a row.
ABFT, RESIDUAL, AID, LOW, HIGH = range(5)
#: Iterations between two residuals, and what their gap may be, relative to the right-hand side.
RESIDUAL_EVERY, RESIDUAL_GAP = 10, 1e-9
#: What rounding may do to a checksum: so many times the unit per entry.
ROUNDING = 8.0


class Checks:
    """Watches a solver from its beginning on; `row` closes a window."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.m = idle()
        self._worst = 0.0
        self._past: list[Array] = []
        self._errors: list[tuple[float, float]] = []
        self._at = np.zeros(5, np.int64)
        clean = Csr(solver.values.copy(), solver.columns.copy(), solver.pointers.copy())
        self._unit = ROUNDING * np.finfo(np.float64).eps * len(clean.values)
        self._window = 0
        if solver.multiplies:
            self._sums, self._sizes = checksums(solver, clean)

    def product(self, x: Array, y: Array) -> None:
        """Compares the sum of a product with the checksum."""
        which = self._window if len(self._sums) > 1 else 0
        with np.errstate(all="ignore"):
            self._worst = max(self._worst, bad_product(self._sums[which], self._sizes[which], x, y, self._unit))

    def row(self, done: bool) -> Array:
        """The checks of the window that has just ended."""
        solver, found = self.solver, np.zeros(5)
        self._window += 1
        found[ABFT], self._worst = self._worst, 0.0
        with np.errstate(all="ignore"):
            state = solver.state()
            if solver.recurs and (done or self._window % RESIDUAL_EVERY == 0):
                found[RESIDUAL] = self._residual()
            if solver.moves:
                found[AID] = self._surprise(state)
            near = state[np.abs(state) < FAR] if solver.name == "sssp" else state
            found[LOW], found[HIGH] = (near.min(), near.max()) if len(near) else (0.0, 0.0)
        found[:AID + 1] = np.where(np.isnan(found[:AID + 1]), np.inf, found[:AID + 1])
        return np.nan_to_num(found, posinf=1e300, neginf=-1e300)

    def _residual(self) -> float:
        """How far the true residual is from the recurrence's, over what is allowed."""
        s: Any = self.solver
        y = np.empty(s.rows)
        product(self.m, self._at, s.values, s.columns, s.pointers, s.x, y)
        gap = s.b - y - s.r
        size = dot(self.m, 0, s.b, 0, s.b)
        return math.sqrt(dot(self.m, 0, gap, 0, gap) / size) / RESIDUAL_GAP if size else 0.0

    def _surprise(self, state: Array) -> float:
        """An extrapolation's error over its bound, twice the worst of the last three, by the order that was better last time."""
        past = self._past
        ratio = 0.0
        if len(past) == 3:
            line, curve = past[2] * 2 - past[1], past[2] * 3 - past[1] * 3 + past[0]
            errors = float(np.abs(state - line).max()), float(np.abs(state - curve).max())
            if len(self._errors) == 3:
                order = 0 if self._errors[-1][0] <= self._errors[-1][1] else 1
                bound = 2 * max(one[order] for one in self._errors)
                ratio = errors[order] / bound if bound else math.inf if errors[order] else 0.0
            self._errors = [*self._errors[-2:], errors]
        self._past = [*past[-2:], state.copy()]
        return ratio


def checksums(solver: Solver, matrix: Csr) -> tuple[Array, Array]:
    """(sums, sums of sizes) of the columns; one row for each window of solvers that work by blocks of rows."""
    n, row = matrix.rows, np.repeat(np.arange(matrix.rows), np.diff(matrix.pointers))
    if not isinstance(solver, TriSolve | SpGemm):
        return _columns(matrix.columns, matrix.values, n)[None], _columns(matrix.columns, np.abs(matrix.values), n)[None]
    block = np.searchsorted(np.array(bounds(n)), row, "right") - 1
    found = []
    for values in (matrix.values, np.abs(matrix.values)):
        if isinstance(solver, SpGemm):
            # 1' (A_block A) 1: the entries of the block times the sums of the rows that they choose.
            values = values * _columns(row, values, n)[matrix.columns]
        found.append(_columns(block * n + matrix.columns, values, BLOCKS * n).reshape(BLOCKS, n))
    return found[0], found[1]


def _columns(index: Array, values: Array, size: int) -> Array:
    return np.bincount(index, values, size)
