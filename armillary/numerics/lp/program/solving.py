"""One call for a program in any form: from a file, or with `scipy.optimize.linprog`'s arguments."""

from __future__ import annotations

from typing import Any

from armillary.errors import InputError, unknown
from armillary.parameters import with_parameters
from armillary.streams import stream

from .problem import LinearProgram, Solution, from_linprog

#: The package in which the methods stand.
_TECHNIQUES = __package__.rpartition(".")[0]
METHODS = {
    "r2hpdhg": ".r2hpdhg:R2Hpdhg",
    "pdlp-average": ".pdlp_average:PdlpAverage",
    "pdhg": ".pdhg:Pdhg",
    "rram-pdhg": ".rram_pdhg:RramPdhg",
    "highs-simplex": ".highs_simplex:HighsSimplex",
    "highs-ipm": ".highs_ipm:HighsIpm",
}


def solve(
    lp: LinearProgram | None = None,
    method: str = "r2hpdhg",
    *,
    c: Any = None,
    A_ub: Any = None,
    b_ub: Any = None,
    A_eq: Any = None,
    b_eq: Any = None,
    bounds: Any = (0, None),
    tol: float | None = None,
    seed: int = 0,
    xp: Any = None,
    comm: Any = None,
    **parameters: Any,
) -> Any:
    """Solves `lp` and returns a `Solution`, or the program that `linprog`'s arguments mean and returns SciPy's `OptimizeResult`.

    `tol` is the method's `tolerance`; `parameters` are its others (`device="TaOx-HfOx"`, `correct=2`). `xp` (numpy, cupy, torch, or a
    device of torch's) and `comm` (ranks that share the rows) are r2hpdhg's: see `R2Hpdhg.solve`.
    """
    if (lp is None) == (c is None):
        raise InputError("found both a program and costs, or neither; expected solve(lp) or solve(c=..., A_ub=...)")
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if tol is not None:
        parameters["tolerance"] = tol
    from importlib import import_module

    module, _, name = METHODS[method].partition(":")
    chosen = with_parameters(getattr(import_module(module, _TECHNIQUES), name), parameters, where=method)
    chosen = chosen.with_rng(stream(seed, "solve", method))
    where: dict[str, Any] = {} if xp is None and comm is None else {"xp": xp, "comm": comm}
    if where and method != "r2hpdhg":
        raise InputError(f"xp or comm: found with the method {method}; expected r2hpdhg, the one that runs on accelerators and ranks")
    if lp is not None:
        return chosen.solve(lp, **where)
    return _as_scipy(chosen.solve(from_linprog(c, A_ub, b_ub, A_eq, b_eq, bounds), **where), A_ub, b_ub, A_eq, b_eq)


def _as_scipy(found: Solution, A_ub: Any, b_ub: Any, A_eq: Any, b_eq: Any) -> Any:
    import numpy as np
    from scipy.optimize import OptimizeResult

    status = {"optimal": 0, "limit": 1, "infeasible": 2, "unbounded": 3}.get(found.status, 4)
    made: Any = OptimizeResult
    return made(
        x=found.x if status == 0 else None,
        fun=found.objective if status == 0 else None,
        slack=None if A_ub is None else np.asarray(b_ub) - A_ub @ found.x,
        con=None if A_eq is None else np.asarray(b_eq) - A_eq @ found.x,
        success=status == 0,
        status=status,
        nit=found.iterations,
        message=found.status,
    )


def write_solution(lp: LinearProgram, found: Solution, path: Any) -> None:
    """Writes the solution as text: status, objective, then one line `name value` for each column and each row's price."""
    columns = lp.columns or [f"x{j}" for j in range(lp.shape[1])]
    rows = lp.rows or [f"r{i}" for i in range(lp.shape[0])]
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"# Status {found.status}\n# Objective {found.objective:.17g}\n# Columns {len(columns)}\n")
        out.writelines(f"{name} {value:.17g}\n" for name, value in zip(columns, found.x))
        out.write(f"# Prices {len(rows)}\n")
        out.writelines(f"{name} {value:.17g}\n" for name, value in zip(rows, found.y))
