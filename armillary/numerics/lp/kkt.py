"""How far a point is from optimal, and proofs that there is no optimum.

Relative errors as first-order solvers state them: ‖primal residual‖₂ / (1 + ‖b‖₂), ‖dual residual‖₂ / (1 + ‖c‖₂) and
|primal − dual| / (1 + |primal| + |dual|), in the program's own units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .problem import Array, LinearProgram
from .scaled import sides


@dataclass(frozen=True)
class Errors:
    """Relative residuals and gap, and the two objectives (of minimising, without the constant)."""

    primal: float
    dual: float
    gap: float
    primal_objective: float
    dual_objective: float

    @property
    def worst(self) -> float:
        """The largest of the three."""
        return max(self.primal, self.dual, self.gap)


def errors(lp: LinearProgram, x: Array, y: Array) -> Errors:
    """The errors of a point; reduced costs are c − Aᵀy where a bound can carry them."""
    primal = residual(lp, x)
    reduced = lp.cost - lp.matrix.T @ y
    dual, value = _dual(lp, reduced, y)
    objective = float(lp.cost @ x)
    return Errors(
        primal / (1 + float(np.linalg.norm(sides(lp.row_lower, lp.row_upper)))),
        dual / (1 + float(np.linalg.norm(lp.cost))),
        abs(objective - value) / (1 + abs(objective) + abs(value)),
        objective,
        value,
    )


def residual(lp: LinearProgram, x: Array) -> float:
    """How far rows and bounds are violated, in the 2-norm."""
    activity = lp.matrix @ x
    rows = np.maximum(lp.row_lower - activity, 0) + np.maximum(activity - lp.row_upper, 0)
    bounds = np.maximum(lp.lower - x, 0) + np.maximum(x - lp.upper, 0)
    return float(np.hypot(np.linalg.norm(rows), np.linalg.norm(bounds)))


def _dual(lp: LinearProgram, reduced: Array, y: Array) -> tuple[float, float]:
    """(norm of what no bound can carry, the dual objective of the rest)."""
    row = np.where(y > 0, lp.row_lower, lp.row_upper)
    bound = np.where(reduced > 0, lp.lower, lp.upper)
    carried_row, carried = np.isfinite(row) | (y == 0), np.isfinite(bound) | (reduced == 0)
    lost = np.hypot(np.linalg.norm(np.where(carried, 0, reduced)), np.linalg.norm(np.where(carried_row, 0, y)))
    value = np.sum(np.where(carried_row & (y != 0), y, 0) * np.where(np.isfinite(row), row, 0))
    value += np.sum(np.where(carried & (reduced != 0), reduced, 0) * np.where(np.isfinite(bound), bound, 0))
    return float(lost), float(value)


def proves_infeasible(lp: LinearProgram, y: Array, tolerance: float) -> bool:
    """Whether the prices y prove that no point satisfies rows and bounds (Farkas): their value is positive at no cost.

    What no bound can carry must be at most `tolerance` of the value, so that no x of moderate size could make up for it.
    """
    size = float(np.abs(y).max(initial=0.0))
    if size == 0.0 or not np.isfinite(size):
        return False
    y = y / size
    lost, value = _dual(lp, -(lp.matrix.T @ y), y)
    return value > 0 and lost <= tolerance * value


def proves_unbounded(lp: LinearProgram, x: Array, tolerance: float) -> bool:
    """Whether the direction x lowers the objective for ever: rows and bounds allow it, to `tolerance` of what it gains."""
    size = float(np.abs(x).max(initial=0.0))
    if size == 0.0 or not np.isfinite(size):
        return False
    x = x / size
    activity = lp.matrix @ x
    gain = -float(lp.cost @ x)
    rows = np.maximum(np.where(np.isfinite(lp.row_lower), -activity, 0), 0) + np.maximum(
        np.where(np.isfinite(lp.row_upper), activity, 0), 0
    )
    bounds = np.maximum(np.where(np.isfinite(lp.lower), -x, 0), 0) + np.maximum(np.where(np.isfinite(lp.upper), x, 0), 0)
    return gain > 0 and float(np.hypot(np.linalg.norm(rows), np.linalg.norm(bounds))) <= tolerance * gain
