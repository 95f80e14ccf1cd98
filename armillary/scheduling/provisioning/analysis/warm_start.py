"""How much sooner HiGHS proves the optimum if it starts from a plan; SciPy's interface takes no start, so this needs highspy."""

from __future__ import annotations

import numpy as np

from armillary.extras import need
from armillary.scheduling.provisioning.milp import Solved
from armillary.scheduling.provisioning.problem.ilp import integer_program
from armillary.scheduling.provisioning.problem.plan import Plan
from armillary.scheduling.provisioning.problem.problem import Problem
from armillary.timing import Stopwatch


def solved_from(problem: Problem, plan: Plan | None, limit_s: float = 300.0, gap: float = 0.0) -> Solved:
    """Runs HiGHS through highspy, from a plan or from nothing."""
    highspy = need("highspy")
    with Stopwatch() as watch:
        program = integer_program(problem)
        matrix = program.matrix.tocsc()
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(program.cost), len(program.high)
        model.col_cost_, model.col_lower_, model.col_upper_ = program.cost, np.zeros(len(program.cost)), program.upper
        model.row_lower_, model.row_upper_ = program.low, program.high
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
        kinds = (highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous)
        model.integrality_ = [kinds[j >= program.whole] for j in range(len(program.cost))]
        highs = highspy.Highs()
        highs.silent()
        highs.setOptionValue("time_limit", float(limit_s))
        if gap:
            highs.setOptionValue("mip_rel_gap", float(gap))
        highs.passModel(model)
        if plan is not None:
            start = highspy.HighsSolution()
            start.col_value = program.values_of(plan).tolist()
            highs.setSolution(start)
        highs.run()
    info = highs.getInfo()
    values = np.array(highs.getSolution().col_value)
    found = None if info.primal_solution_status != 2 or not len(values) else program.plan(values)
    bound = max(problem.simple_bound, float(info.mip_dual_bound) + program.constant)
    return Solved(found, bound, highs.getModelStatus() == highspy.HighsModelStatus.kOptimal, watch.seconds)
