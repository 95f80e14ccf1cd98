"""HiGHS through SciPy, an exact solver whose optimum the other methods are compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from armillary.timing import Stopwatch

from . import kkt
from .method import Method
from .problem import LinearProgram, Solution, Status

_STATES: dict[int, Status] = {0: "optimal", 1: "limit", 2: "infeasible", 3: "unbounded", 4: "limit"}


def by_highs(lp: LinearProgram, method: Literal["highs-ds", "highs-ipm"]) -> tuple[Any, Status, np.ndarray]:
    """Returns SciPy's result, its status, and the prices of the rows."""
    equal = lp.row_lower == lp.row_upper
    above, below = np.isfinite(lp.row_lower) & ~equal, np.isfinite(lp.row_upper) & ~equal
    upper = csr_array(vstack([lp.matrix[below], -lp.matrix[above]]))
    right = np.concatenate([lp.row_upper[below], -lp.row_lower[above]])
    # SciPy declares more overloads than a type checker can try.
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


def solved_by_highs(method: Method, lp: LinearProgram, name: Literal["highs-ds", "highs-ipm"]) -> Solution:
    """Returns the solution that HiGHS finds, with the seconds of HiGHS alone."""
    if 0 in lp.shape:
        quick = method.without_rows_or_columns(lp)
        assert quick is not None
        return quick
    with Stopwatch() as watch:
        found, status, prices = by_highs(lp, name)
        x = np.zeros(lp.shape[1]) if found.x is None else np.asarray(found.x)
    answer = method.solution(lp, status, x, prices, kkt.errors(lp, x, prices), int(found.nit), 0.0)
    return replace(answer, seconds=watch.seconds)
