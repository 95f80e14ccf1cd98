"""Finds the exact plan for one order and one pair of micro-batches with a mixed-integer program for HiGHS.

The binary z[i, j, b] puts layer i on device j at precision b, and x[i, j] = Σ_b z. Each layer is placed once. Placement is in order,
written as Σ_{k≤j} x[i, k] ≤ Σ_{k≤j} x[i − 1, k] (equal to the published x[i, j] + x[i − 1, k] ≤ 1 for k > j on whole numbers, and
tighter between them). Every device gets at least one layer and stays within its memory, and a stage's time is at least its compute and
its sends. HiGHS is called through SciPy, which takes no start, so the heuristic's value becomes a bound on the objective instead. With
`solver="highspy"` it starts from the heuristic's plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from armillary import extras

from .problem import Choice, DoesNotFit, Problem

Solver = Literal["auto", "highspy", "scipy"]


@dataclass(frozen=True)
class Solved:
    """A choice, its objective (seconds + θ·Σω, or Σω), the proven lower bound, and the solver that found it."""

    choice: Choice
    objective: float
    bound: float
    solver: str


def solver_of(wanted: Solver = "auto") -> Literal["highspy", "scipy"]:
    """Returns the interface through which HiGHS is called: SciPy's, which is always there, unless highspy is asked for.

    Two interfaces may find different plans within the gap, so what happens to be installed must not choose between them.
    """
    if wanted == "highspy":
        extras.need("highspy")
    return "highspy" if wanted == "highspy" else "scipy"


@dataclass(frozen=True)
class _Program:
    """min cost·v subject to low ≤ A·v ≤ high, lower ≤ v ≤ upper; the first `whole` variables are whole numbers."""

    cost: Any
    matrix: Any
    low: Any
    high: Any
    lower: Any
    upper: Any
    whole: int
    #: The seconds and the Σω of one unit of the program.
    time_unit: float
    quality_unit: float


def objective_of(problem: Problem, choice: Choice, theta: float, only_quality: bool = False) -> float:
    """Returns seconds + θ·Σω, or Σω alone."""
    if only_quality:
        return problem.quality(choice)
    return problem.seconds(choice) + theta * problem.quality(choice)


def _program(problem: Problem, theta: float, quality: float | None, only_quality: bool, empty: bool) -> _Program:
    from scipy import sparse

    layers, devices, kinds = problem.prefill.shape
    z = np.arange(layers * devices * kinds).reshape(layers, devices, kinds)
    count = z.size
    # T_pre[N], T_dec[N], their maxima and used[N] follow.
    pre, dec = count + np.arange(devices), count + devices + np.arange(devices)
    top_pre, top_dec = count + 2 * devices, count + 2 * devices + 1
    used = count + 2 * devices + 2 + np.arange(devices)
    variables = count + 3 * devices + 2
    # The units bring the numbers near one, because HiGHS's tolerances are absolute.
    time_unit = float(max(problem.prefill.max(), problem.decode.max(), 1e-300))
    memory_unit = float(max(problem.memory.max(), 1e-300))
    quality_unit = float(max(problem.omega.max(), 1e-300))
    rows: list[tuple[Any, Any]] = []
    low: list[float] = []
    high: list[float] = []

    def row(columns: Any, values: Any, least: float, most: float) -> None:
        rows.append((np.ravel(columns), np.broadcast_to(values, np.shape(columns)).ravel()))
        low.append(least)
        high.append(most)

    for i in range(layers):
        row(z[i], 1.0, 1.0, 1.0)
    for i in range(1, layers):
        for j in range(devices - 1):
            here, before = z[i, : j + 1].ravel(), z[i - 1, : j + 1].ravel()
            row(np.concatenate([here, before]), np.concatenate([np.ones(len(here)), -np.ones(len(before))]), -np.inf, 0.0)
    for j in range(devices):
        if not empty:
            row(z[:, j], 1.0, 1.0, np.inf)
        row(z[:, j], problem.memory / memory_unit, -np.inf, max(0.0, problem.budget[j]) / memory_unit)
        for time, table, once, send, top in (
            (pre[j], problem.prefill, problem.once_prefill, problem.send_prefill, top_pre),
            (dec[j], problem.decode, problem.once_decode, problem.send_decode, top_dec),
        ):
            columns = np.concatenate([z[:, j].ravel(), [used[j], time]])
            values = np.concatenate([table[:, j].ravel() / time_unit, [once[j] / time_unit, -1.0]])
            row(columns, values, -np.inf, 0.0)
            row([used[j], time], [send[j] / time_unit, -1.0], -np.inf, 0.0)
            row([time, top], [1.0, -1.0], -np.inf, 0.0)
        if empty:
            for i in range(layers):
                row(np.concatenate([z[i, j], [used[j]]]), np.concatenate([np.ones(kinds), [-1.0]]), -np.inf, 0.0)
    per_layer = np.repeat(problem.omega[:, None], devices, 1).ravel() / quality_unit
    if quality is not None:
        row(z.ravel(), per_layer, -np.inf, quality / quality_unit * (1 + 1e-9) + 1e-12)
    cost = np.zeros(variables)
    if only_quality:
        cost[z.ravel()] = per_layer
    else:
        cost[pre], cost[top_pre] = 1.0, problem.prefill_turns
        cost[dec], cost[top_dec] = float(problem.decodes), problem.decode_turns * problem.decodes
        cost[z.ravel()] = theta * per_layer * quality_unit / time_unit
    lengths = [len(columns) for columns, _ in rows]
    matrix = sparse.csr_array(
        (
            np.concatenate([values for _, values in rows]),
            np.concatenate([columns for columns, _ in rows]),
            np.concatenate([[0], np.cumsum(lengths)]),
        ),
        shape=(len(rows), variables),
    )
    lower, upper = np.zeros(variables), np.full(variables, np.inf)
    upper[:count] = upper[used] = 1.0
    if not empty:
        lower[used] = 1.0
        upper[z[0, 1:].ravel()] = upper[z[-1, :-1].ravel()] = 0.0
        if devices == 1:
            upper[z.ravel()] = 1.0
    return _Program(cost, matrix, np.array(low), np.array(high), lower, upper, count, time_unit, quality_unit)


def relaxed(problem: Problem, *, theta: float = 0.0, quality: float | None = None, empty: bool = False) -> float:
    """Returns a lower bound on the objective from the program without integrality; infinite if even that does not fit."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    p = _program(problem, theta, quality, False, empty)
    found = milp(p.cost, constraints=LinearConstraint(p.matrix, p.low, p.high), bounds=Bounds(p.lower, p.upper))
    return float(found.fun) * p.time_unit if found.status == 0 else np.inf


def solve(
    problem: Problem, *, theta: float = 0.0, quality: float | None = None, only_quality: bool = False, empty: bool = False,
    start: Choice | None = None, gap: float = 1e-4, limit_s: float = 60.0, solver: Solver = "auto",
) -> Solved:  # fmt: skip
    """Returns the choice of least seconds + θ·Σω (or, `only_quality`, of least Σω), with Σω ≤ `quality` where given.

    `start` is a feasible choice to begin with; it is returned if the time limit ends the search without a better one.
    """
    problem.check(empty=empty)
    p = _program(problem, theta, quality, only_quality, empty)
    unit = p.quality_unit if only_quality else p.time_unit
    known = None if start is None else objective_of(problem, start, theta, only_quality)
    way = solver_of(solver)
    values, bound, status = (_highspy if way == "highspy" else _scipy)(p, problem, start, known, unit, gap, limit_s)
    if values is None:
        if start is not None:
            return Solved(start, float(known or 0.0), bound * unit, f"{way}: start kept ({status})")
        raise DoesNotFit(f"no plan of {problem.layers} layers on {', '.join(problem.names)} fits the memory and the quality ({status})")
    shape = problem.prefill.shape
    picked = np.round(values[: p.whole]).reshape(shape)
    device, bits = picked.sum(2).argmax(1), picked.sum(1).argmax(1)
    choice = Choice(device, bits)
    objective = objective_of(problem, choice, theta, only_quality)
    if start is not None and known is not None and known <= objective:
        return Solved(start, known, bound * unit, f"{way} ({status})")
    return Solved(choice, objective, bound * unit, f"{way} ({status})")


def _scipy(
    p: _Program, problem: Problem, start: Choice | None, known: float | None, unit: float, gap: float, limit_s: float
) -> tuple[Any, float, str]:
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    matrix, low, high = p.matrix, p.low, p.high
    if known is not None:
        # SciPy takes no start, but solutions worse than the start need not be searched.
        matrix = sparse.vstack([matrix, sparse.csr_array(p.cost[None])], format="csr")
        low, high = np.append(low, -np.inf), np.append(high, known / unit * (1 + 1e-9) + 1e-9)
    whole = np.zeros(len(p.cost), np.int64)
    whole[: p.whole] = 1
    found = milp(
        p.cost, integrality=whole, constraints=LinearConstraint(matrix, low, high), bounds=Bounds(p.lower, p.upper),
        options={"time_limit": limit_s, "mip_rel_gap": gap},
    )  # fmt: skip
    bound = found.mip_dual_bound if found.mip_dual_bound is not None else -np.inf
    status = {0: "optimal", 1: "time limit", 2: "infeasible"}.get(found.status, "stopped")
    return found.x, float(bound), status


def _highspy(
    p: _Program, problem: Problem, start: Choice | None, known: float | None, unit: float, gap: float, limit_s: float
) -> tuple[Any, float, str]:
    import highspy

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(p.cost), len(p.low)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = p.cost, p.lower, p.upper
    lp.row_lower_, lp.row_upper_ = p.low, p.high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = p.matrix.indptr, p.matrix.indices, p.matrix.data
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger] * p.whole + [kinds.kContinuous] * (len(p.cost) - p.whole)
    make: Any = highspy.Highs
    highs = make()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("mip_rel_gap", gap)
    highs.setOptionValue("time_limit", limit_s)
    highs.passModel(lp)
    if start is not None:
        given = highspy.HighsSolution()
        given.col_value = _point(p, problem, start).tolist()
        highs.setSolution(given)
    highs.run()
    status = highs.modelStatusToString(highs.getModelStatus()).lower()
    info = highs.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return (np.array(highs.getSolution().col_value) if found else None), float(info.mip_dual_bound), status


def _point(p: _Program, problem: Problem, choice: Choice) -> Any:
    """Returns a choice as values of the program's variables."""
    layers, devices, kinds = problem.prefill.shape
    point = np.zeros(len(p.cost))
    picked = point[: p.whole].reshape(layers, devices, kinds)
    picked[np.arange(layers), choice.device, choice.bits] = 1.0
    pre, dec = problem.stage_times(choice)
    at = p.whole
    point[at : at + devices], point[at + devices : at + 2 * devices] = pre / p.time_unit, dec / p.time_unit
    point[at + 2 * devices], point[at + 2 * devices + 1] = pre.max() / p.time_unit, dec.max() / p.time_unit
    point[at + 2 * devices + 2 :] = np.bincount(choice.device, minlength=devices) > 0
    return point
