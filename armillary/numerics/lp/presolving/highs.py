"""HiGHS's presolve and postsolve, through highspy.

Huangfu, Hall: Parallelizing the dual revised simplex method. 2018. Gleixner, Gottwald, Hoen: PaPILO, a parallel presolving library for
integer and linear optimization with multiprecision support. 2023, whose rules HiGHS's presolve follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array

from armillary.extras import need

from ..program.problem import Array, LinearProgram
from .reduction import Finding, Reduction


def reduced_by_highs(lp: LinearProgram) -> Reduction:
    """Returns what HiGHS's presolve makes of the program; needs highspy."""
    highspy: Any = need("highspy")
    solver = highspy.Highs()
    solver.silent()
    solver.passModel(_model(highspy, lp))
    solver.presolve()
    states = highspy.HighsPresolveStatus
    found: dict[Any, Finding] = {
        states.kReduced: "smaller",
        states.kReducedToEmpty: "smaller",
        states.kInfeasible: "infeasible",
        states.kUnboundedOrInfeasible: "no optimum",
    }
    finding = found.get(solver.getModelPresolveStatus(), "nothing")
    if finding != "smaller":
        return Reduction(finding)
    small = _program(solver.getPresolvedLp(), lp)

    def restore(x: Array, y: Array) -> tuple[Array, Array]:
        point = highspy.HighsSolution()
        point.value_valid = point.dual_valid = True
        point.col_value, point.row_dual = x.tolist(), y.tolist()
        point.row_value, point.col_dual = small.activity(x).tolist(), (small.cost - small.gradient(y)).tolist()
        solver.postsolve(point)
        whole = solver.getSolution()
        return np.array(whole.col_value), np.array(whole.row_dual)

    return Reduction(finding, small, restore)


def _model(highspy: Any, lp: LinearProgram) -> Any:
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = lp.shape
    model.col_cost_, model.col_lower_, model.col_upper_ = lp.cost, lp.lower, lp.upper
    model.row_lower_, model.row_upper_ = lp.row_lower, lp.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = lp.matrix.indptr, lp.matrix.indices, lp.matrix.data
    return model


def _program(model: Any, lp: LinearProgram) -> LinearProgram:
    value, index, start = (np.array(part) for part in (model.a_matrix_.value_, model.a_matrix_.index_, model.a_matrix_.start_))
    matrix = csr_array(csc_array((value, index.astype(np.int32), start.astype(np.int32)), shape=(model.num_row_, model.num_col_)))
    vectors = model.row_lower_, model.row_upper_, model.col_lower_, model.col_upper_
    low, high, lower, upper = (np.array(vector, np.float64) for vector in vectors)
    cost = np.array(model.col_cost_, np.float64)
    return LinearProgram(cost, matrix, low, high, lower, upper, constant=lp.constant + model.offset_, sense=lp.sense)
