"""HiGHS through SciPy: what an exact solver says, and how long it takes.

Huangfu, Hall: Parallelizing the dual revised simplex method. 2018.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from . import kkt
from .method import Method
from .problem import LinearProgram, Solution, Status

_STATES: dict[int, Status] = {0: "optimal", 1: "limit", 2: "infeasible", 3: "unbounded", 4: "limit"}


def by_highs(lp: LinearProgram, method: Literal["highs-ds", "highs-ipm"]) -> tuple[Any, Status, np.ndarray]:
    """SciPy's result, its status, and the rows' prices."""
    equal = lp.row_lower == lp.row_upper
    above, below = np.isfinite(lp.row_lower) & ~equal, np.isfinite(lp.row_upper) & ~equal
    upper = csr_array(vstack([lp.matrix[below], -lp.matrix[above]]))
    right = np.concatenate([lp.row_upper[below], -lp.row_lower[above]])
    # Its overloads are more than a type checker can try.
    call: Any = linprog
    found = call(
        lp.cost,
        A_ub=upper if upper.shape[0] else None,
        b_ub=right if upper.shape[0] else None,
        A_eq=lp.matrix[equal] if equal.any() else None,
        b_eq=lp.row_lower[equal] if equal.any() else None,
        bounds=np.stack([lp.lower, lp.upper], axis=1),
        method=method,
    )
    prices = np.zeros(lp.shape[0])
    if found.x is not None:
        if equal.any():
            prices[equal] = found.eqlin.marginals
        if upper.shape[0]:
            prices[below] += found.ineqlin.marginals[: below.sum()]
            prices[above] -= found.ineqlin.marginals[below.sum() :]
    return found, _STATES.get(found.status, "limit"), prices


@dataclass(frozen=True)
class HighsSimplex(Method):
    """The dual simplex method. Huangfu, Hall: Parallelizing the dual revised simplex method. 2018."""

    def solve(self, lp: LinearProgram) -> Solution:
        return _solved(self, lp, "highs-ds")


@dataclass(frozen=True)
class HighsIpm(Method):
    """The interior-point method, with crossover. Schork, Gondzio: Interior point method with basis preconditioning. 2020."""

    def solve(self, lp: LinearProgram) -> Solution:
        return _solved(self, lp, "highs-ipm")


def _solved(method: Method, lp: LinearProgram, name: Literal["highs-ds", "highs-ipm"]) -> Solution:
    start = time.perf_counter()
    if 0 in lp.shape:
        quick = method.without_rows_or_columns(lp)
        assert quick is not None
        return quick
    found, status, prices = by_highs(lp, name)
    x = np.zeros(lp.shape[1]) if found.x is None else np.asarray(found.x)
    seconds = time.perf_counter()
    answer = method.solution(lp, status, x, prices, kkt.errors(lp, x, prices), int(found.nit), start)
    return Solution(**{**vars(answer), "seconds": seconds - start})
