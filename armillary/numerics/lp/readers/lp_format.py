"""Reads CPLEX LP files through HiGHS's own reader (`highspy`), which knows the subset that solvers agree on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy.sparse import csc_array, csr_array

from armillary.errors import InputError
from armillary.files import check_readable

from ..program.problem import LinearProgram


def read_lp(path: str | os.PathLike[str]) -> LinearProgram:
    """Reads the program in a `.lp` file. Integer variables are relaxed, with a note; quadratic objectives are refused."""
    try:
        import highspy
    except ImportError:
        raise InputError("a .lp file: the package highspy is not installed; expected it (pip install highspy), or an MPS file") from None
    path = Path(path)
    check_readable(path)
    highs = highspy.Highs()
    highs.silent()
    if highs.readModel(str(path)) != highspy.HighsStatus.kOk:
        raise InputError("found what HiGHS cannot read as an LP file; expected the CPLEX LP format", where=str(path))
    model = highs.getModel()
    if model.hessian_.dim_:
        raise InputError("found a quadratic objective; expected a linear one", where=str(path))
    lp = model.lp_
    if not lp.num_col_:
        raise InputError("found no variables; expected a program in the CPLEX LP format", where=str(path))
    shape = (lp.num_row_, lp.num_col_)
    kept = csc_array if lp.a_matrix_.format_ == highspy.MatrixFormat.kColwise else csr_array
    matrix = kept((np.array(lp.a_matrix_.value_), np.array(lp.a_matrix_.index_), np.array(lp.a_matrix_.start_)), shape=shape)
    sense = -1 if lp.sense_ == highspy.ObjSense.kMaximize else 1
    whole = [kind != highspy.HighsVarType.kContinuous for kind in lp.integrality_]
    notes = (f"{sum(whole)} integer variables, relaxed",) if any(whole) else ()
    return LinearProgram(
        sense * np.array(lp.col_cost_), csr_array(matrix), np.array(lp.row_lower_), np.array(lp.row_upper_), np.array(lp.col_lower_),
        np.array(lp.col_upper_), sense * lp.offset_, sense, lp.model_name_, list(lp.row_names_), list(lp.col_names_), notes,
    )  # fmt: skip
