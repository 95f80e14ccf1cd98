"""Restarted averaged PDHG over products that may be noisy: the loop that runs in memory, and in exact arithmetic beside it.

Products with A and Aᵀ come from outside; all else is digital. Iterates are averaged from restart to restart; a run begins anew from the
average when its error has fallen to a fifth of what it was, or when it has become a third of the whole. Errors are taken digitally every 64
steps; when they stop falling, noise allows no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..program import kkt
from ..program.problem import Array, LinearProgram, Status
from .scaled import Scaled
from .sums import length

LOOK = 64
_SUFFICIENT, _LONG = 0.2, 0.36
_MARGIN = 0.95
#: The number of checks without this reduction of the error after which only noise is left.
_STALLED, _LESS = 10, 0.95

Product = Callable[[Array], Array]


@dataclass
class Loop:
    """What the loop found: the best point by its digital errors, and how it ended."""

    x: Array
    y: Array
    errors: kkt.Errors
    status: Status
    iterations: int
    ray: Array | None
    history: list[tuple[float, float, float, float]]


def run(
    lp: LinearProgram,
    p: Scaled,
    forward: Product,
    backward: Product,
    norm: float,
    tolerance: float,
    most: int,
    ray_tolerance: float,
    stall: bool,
) -> Loop:
    """Iterates x⁺ = clip(x − τ(c − Aᵀy)), t = y/σ − A(2x⁺ − x), y⁺ = σ(t − clip(t)) with `forward` for A and `backward` for Aᵀ."""
    m, n = p.matrix.shape
    x, y = np.clip(np.zeros(n), p.lower, p.upper), np.zeros(m)
    omega = _weight(length(p.cost), length(np.where(np.isfinite(p.row_lower), p.row_lower, 0)))
    sum_x, sum_y, count = np.zeros(n), np.zeros(m), 0
    first_x, first_y = x.copy(), y.copy()
    best = Loop(*p.original(x, y), kkt.errors(lp, *p.original(x, y)), "limit", 0, None, [])
    at_restart, stalled, last = best.errors.worst, 0, (x, y)
    for k in range(1, most + 1):
        tau, sigma = _MARGIN / (omega * norm), _MARGIN * omega / norm
        new_x = np.clip(x - tau * (p.cost - backward(y)), p.lower, p.upper)
        t = y / sigma - forward(2 * new_x - x)
        new_y = sigma * (t - np.clip(t, -p.row_upper, -p.row_lower))
        last, x, y = (x, y), new_x, new_y
        sum_x, sum_y, count = sum_x + x, sum_y + y, count + 1
        if k % LOOK and k != most:
            continue
        average = sum_x / count, sum_y / count
        points = [p.original(*average), p.original(x, y)]
        found = [kkt.errors(lp, *point) for point in points]
        better = int(found[1].worst < found[0].worst)
        best.history.append((k, found[better].primal, found[better].dual, found[better].gap))
        stalled = 0 if found[better].worst < _LESS * best.errors.worst else stalled + 1
        if found[better].worst < best.errors.worst:
            (best.x, best.y), best.errors = points[better], found[better]
        best.iterations = k
        if best.errors.worst <= tolerance:
            best.status = "optimal"
            return best
        if _proved(lp, p, (x, y), last, best, ray_tolerance):
            return best
        if stall and stalled >= _STALLED:
            best.status = "noise floor"
            return best
        if found[0].worst <= _SUFFICIENT * at_restart or count >= _LONG * k:
            x, y = average
            moved_x, moved_y = length(x - first_x), length(y - first_y)
            if min(moved_x, moved_y) > 1e-10:
                omega = math.exp(0.5 * math.log(moved_y / moved_x) + 0.5 * math.log(omega))
            first_x, first_y = x.copy(), y.copy()
            sum_x, sum_y, count = np.zeros(n), np.zeros(m), 0
            at_restart = found[0].worst
    return best


def _weight(cost: float, right: float) -> float:
    return cost / right if cost > 1e-10 and right > 1e-10 else 1.0


def _proved(lp: LinearProgram, p: Scaled, now: tuple[Array, Array], before: tuple[Array, Array], best: Loop, tolerance: float) -> bool:
    """Says whether the last step, or the point itself, proves that there is no optimum; noted in `best`."""
    point = p.original(*now)
    move = p.original(now[0] - before[0], now[1] - before[1])
    for direction in (point[1], move[1]):
        if kkt.proves_infeasible(lp, direction, tolerance):
            best.status, best.ray = "infeasible", direction / np.abs(direction).max()
            return True
    for direction in (point[0], move[0]):
        if kkt.proves_unbounded(lp, direction, tolerance):
            best.status, best.ray = "unbounded", direction / np.abs(direction).max()
            return True
    return False
