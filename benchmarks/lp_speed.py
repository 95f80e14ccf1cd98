"""Linear programs: our first-order methods beside HiGHS (SciPy's), highspy's two PDLPs and OR-Tools' where installed, in one run.

python benchmarks/lp_speed.py [size] [tolerance] [family ...] prints seconds, CPU seconds, iterations and objective errors, and the time of
a step over two products. OR-Tools and highspy clash in one process, so each runs in its own. The multicommodity program on a grid of 40×40
nodes is `lp_speed.py 25600 1e-4 multicommodity`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np

from armillary.numerics.lp import HighsIpm, HighsSimplex, LinearProgram, PdlpAverage, R2Hpdhg
from armillary.numerics.lp.first_order.scaled import scaled
from armillary.numerics.lp.r2hpdhg import LOOK, _Run
from armillary.numerics.lp.workload import FAMILIES, family

_PEER = """
import json, sys, time
import numpy as np
name, size, tolerance = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
from armillary.numerics.lp.workload import family
lp = family(name, size, np.random.default_rng(0))
peer = sys.argv[4]
if peer in ("pdlp", "hipdlp"):
    import highspy
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = lp.shape
    model.col_cost_, model.col_lower_, model.col_upper_ = lp.cost, lp.lower, lp.upper
    model.row_lower_, model.row_upper_ = lp.row_lower, lp.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = lp.matrix.indptr, lp.matrix.indices, lp.matrix.data
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("solver", peer)
    solver.setOptionValue("pdlp_optimality_tolerance", tolerance)
    solver.setOptionValue("time_limit", 20.0)
    solver.passModel(model)
    start, worked = time.perf_counter(), time.process_time()
    solver.run()
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    print(json.dumps([seconds, worked, solver.getInfo().pdlp_iteration_count, solver.getInfo().objective_function_value]))
else:
    from ortools.pdlp import solve_log_pb2, solvers_pb2
    from ortools.pdlp.python import pdlp
    problem = pdlp.QuadraticProgram()
    problem.resize_and_initialize(lp.shape[1], lp.shape[0])
    problem.objective_vector, problem.constraint_matrix = lp.cost, lp.matrix.tocsc()
    problem.variable_lower_bounds, problem.variable_upper_bounds = lp.lower, lp.upper
    problem.constraint_lower_bounds, problem.constraint_upper_bounds = lp.row_lower, lp.row_upper
    how = solvers_pb2.PrimalDualHybridGradientParams()
    how.termination_criteria.simple_optimality_criteria.eps_optimal_relative = tolerance
    how.termination_criteria.simple_optimality_criteria.eps_optimal_absolute = tolerance
    start, worked = time.perf_counter(), time.process_time()
    found = pdlp.primal_dual_hybrid_gradient(problem, how)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    print(json.dumps([seconds, worked, found.solve_log.iteration_count, float(lp.cost @ found.primal_solution)]))
"""


def step_over_products(lp: LinearProgram) -> float:
    """Seconds of one fused step over those of SciPy's two products with the matrix and its transpose."""
    problem = scaled(lp)
    run = _Run(problem, np.random.default_rng(0))
    run.advance(LOOK)
    start = time.perf_counter()
    run.advance(LOOK)
    step = (time.perf_counter() - start) / LOOK
    x, y = np.ones(lp.shape[1]), np.ones(lp.shape[0])
    start = time.perf_counter()
    for _ in range(LOOK):
        problem.matrix @ x
        problem.transposed @ y
    return step / ((time.perf_counter() - start) / LOOK)


def main() -> None:
    """One line for each family and solver."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    tolerance = float(sys.argv[2]) if len(sys.argv) > 2 else 1e-4
    for name in sys.argv[3:] or FAMILIES:
        lp = family(name, size, np.random.default_rng(0))
        exact = HighsSimplex().solve(lp)
        rows: dict[str, tuple[float, ...]] = {"highs-simplex": (exact.seconds, float("nan"), exact.iterations, exact.objective)}
        for label, method in (
            ("highs-ipm", HighsIpm()),
            ("r2hpdhg", R2Hpdhg(tolerance=tolerance)),
            ("r2hpdhg, no presolve", R2Hpdhg(tolerance=tolerance, presolve="off")),
            ("pdlp-average", PdlpAverage(tolerance=tolerance)),
        ):
            if label != "highs-ipm":
                method.solve(lp)
            worked = time.process_time()
            found = method.solve(lp)
            rows[label] = (found.seconds, time.process_time() - worked, found.iterations, found.objective)
        for peer, module in (("pdlp", "highspy"), ("hipdlp", "highspy"), ("PDLP", "ortools")):
            if find_spec(module) is None:
                continue
            ran = subprocess.run(
                [sys.executable, "-c", _PEER, name, str(size), str(tolerance), peer],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if ran.returncode == 0:
                rows[f"{module} {peer}"] = tuple(json.loads(ran.stdout.strip().splitlines()[-1]))
        print(f"{name} {lp.shape[0]}×{lp.shape[1]}, {lp.matrix.nnz} nonzeros; a step takes {step_over_products(lp):.2f} of two products")
        for label, (seconds, worked, iterations, objective) in rows.items():
            off = abs(objective - exact.objective) / (1 + abs(exact.objective))
            clock = f"{seconds:8.3f} s {worked:8.3f} CPU s"
            print(f"    {label:20s} {clock}  {iterations:8.0f} iterations  objective off by {off:.1e}", flush=True)


if __name__ == "__main__":
    main()
