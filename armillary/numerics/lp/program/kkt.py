"""How far a point is from optimal, and proofs that there is no optimum.

Relative errors as first-order solvers state them: ‖primal residual‖₂ / (1 + ‖b‖₂), ‖dual residual‖₂ / (1 + ‖c‖₂) and
|primal − dual| / (1 + |primal| + |dual|), in the program's own units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arrays import Array

from ..first_order.sums import dot, length


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


def errors(lp: Any, x: Array, y: Array) -> Errors:
    """Returns the errors of a point of a program anywhere (`LinearProgram` or `Placed`); reduced costs are c − Aᵀy where a bound can carry
    them.
    """
    primal = residual(lp, x)
    reduced = lp.cost - lp.gradient(y)
    dual, value = _dual(lp, reduced, y)
    objective = dot(lp.cost, x)
    return Errors(
        primal / (1 + right_norm(lp)),
        dual / (1 + length(lp.cost)),
        abs(objective - value) / (1 + abs(objective) + abs(value)),
        objective,
        value,
    )


def right_norm(lp: Any) -> float:
    """Returns the norm of the right-hand sides: of each row the larger finite side, 0 where it has none."""
    xp = lp.xp
    side = xp.maximum(xp.abs(_finite(xp, lp.row_lower)), xp.abs(_finite(xp, lp.row_upper)))
    return lp.row_total(dot(side, side)) ** 0.5


def residual(lp: Any, x: Array) -> float:
    """Says how far rows and bounds are violated, in the 2-norm."""
    activity = lp.activity(x)
    rows = _positive(lp.xp, lp.row_lower - activity) + _positive(lp.xp, activity - lp.row_upper)
    bounds = _positive(lp.xp, lp.lower - x) + _positive(lp.xp, x - lp.upper)
    return (lp.row_total(dot(rows, rows)) + dot(bounds, bounds)) ** 0.5


def _positive(xp: Any, values: Array) -> Array:
    return xp.where(values > 0, values, xp.zeros_like(values))


def _finite(xp: Any, values: Array) -> Array:
    return xp.where(xp.isfinite(values), values, xp.zeros_like(values))


def _dual(lp: Any, reduced: Array, y: Array) -> tuple[float, float]:
    """Returns (norm of what no bound can carry, the dual objective of the rest)."""
    lost_rows, value_rows = _carried(lp.xp, y, lp.row_lower, lp.row_upper)
    lost, value = _carried(lp.xp, reduced, lp.lower, lp.upper)
    return (lp.row_total(lost_rows) + lost) ** 0.5, lp.row_total(value_rows) + value


def _carried(xp: Any, prices: Array, low: Array, high: Array) -> tuple[float, float]:
    """Returns (square of the prices whose side is infinite, the value of the others at their sides)."""
    side = xp.where(prices > 0, low, high)
    lost = xp.where(xp.isfinite(side), xp.zeros_like(prices), prices)
    return dot(lost, lost), dot(prices - lost, _finite(xp, side))


def proves_infeasible(lp: Any, y: Array, tolerance: float) -> bool:
    """Says whether the prices y prove that no point satisfies rows and bounds (Farkas): their value is positive at no cost.

    What no bound can carry must be at most `tolerance` of the value, so that no x of moderate size could make up for it.
    """
    size = lp.row_total(dot(y, y)) ** 0.5
    if size == 0.0 or not np.isfinite(size):
        return False
    y = y / size
    lost, value = _dual(lp, -lp.gradient(y), y)
    return value > 0 and lost <= tolerance * value


def proves_unbounded(lp: Any, x: Array, tolerance: float) -> bool:
    """Says whether the direction x lowers the objective for ever: rows and bounds allow it, to `tolerance` of what it gains."""
    size = length(x)
    if size == 0.0 or not np.isfinite(size):
        return False
    x = x / size
    gain = -dot(lp.cost, x)
    rows = _outward(lp.xp, lp.activity(x), lp.row_lower, lp.row_upper)
    bounds = _outward(lp.xp, x, lp.lower, lp.upper)
    return gain > 0 and (lp.row_total(rows) + bounds) ** 0.5 <= tolerance * gain


def _outward(xp: Any, move: Array, low: Array, high: Array) -> float:
    """Returns the square of what a move violates of finite sides, however small it is taken."""
    off = xp.where(((move < 0) & xp.isfinite(low)) | ((move > 0) & xp.isfinite(high)), move, xp.zeros_like(move))
    return dot(off, off)
