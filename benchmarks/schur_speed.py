"""Schur complements of a cube inside others on this machine: stepped against the other methods, one thread each.

python benchmarks/schur_speed.py [sides…] prints a table (3-D heat, sides 8 to 20 without arguments; 25 takes 6 GB and minutes) and one JSON
object. Ratios come from one run. pypardiso stands beside SciPy's solver where it is installed.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary.numerics.schur import SchurAssembler, Stepped
from armillary.numerics.schur.complement.method import Method
from armillary.numerics.schur.feti.decomposition import inside

METHODS: dict[str, str | Method] = {
    "stepped": "stepped",
    "stepped, stairs": Stepped(syrk="stairs", syrk_chunk=256, trsm_chunk=256),
    "augmented": "augmented",
    "explicit": "explicit",
    "explicit-sparse": "explicit-sparse",
}
#: Operations beyond which SciPy's sparse solves, at about 0.3 GFLOP/s, are left out.
MOST_SPARSE = 1.5e10


def best(work: Callable[[], Any], repeats: int = 3) -> float:
    """The least seconds of so many calls: others use the machine too."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def refactored(assembler: SchurAssembler) -> Any:
    """L of the same values, made again."""
    return assembler.update(assembler.k.data).factor.lower


def pardiso(k: Any, b: Any) -> float | None:
    """Seconds of pypardiso for K⁻¹Bᵀ and B times it, its factorisation not counted; None where it is not installed."""
    if find_spec("pypardiso") is None:
        return None
    solver = import_module("pypardiso").PyPardisoSolver()
    matrix, sides = k.tocsr(), b.T.toarray(order="F")
    solver.factorize(matrix)
    return best(lambda: b @ solver.solve(matrix, sides))


def main() -> None:
    """Times every method at the sides given and prints ratios over explicit."""
    sides = [int(n) for n in sys.argv[1:]] or [8, 10, 13, 16, 20]
    found: dict[str, Any] = {}
    if find_spec("pypardiso") is None:
        print("pypardiso: not installed, left out")
    for side in sides:
        k, b = inside("heat", 3, side)
        base = SchurAssembler(k, b, "implicit").symbolic()
        factor_s = best(partial(refactored, base))
        x = np.ones(b.shape[0])
        implicit_s = best(partial(base.operator().matvec, x), 5)
        rows: dict[str, dict[str, Any]] = {}
        for name, method in METHODS.items():
            assembler = base.with_method(method)
            if name == "explicit-sparse" and assembler.work.total > MOST_SPARSE:
                print(f"{side:3d} {name:18s} left out: it would take minutes")
                continue
            f = assembler()
            apply_s = best(partial(np.matmul, f, x), 5)
            took = best(assembler)
            rows[name] = {"s": took, "apply_s": apply_s, "operations": assembler.work.total}
        if (seconds := pardiso(k, b)) is not None:
            rows["explicit-sparse, pypardiso"] = {"s": seconds, "apply_s": rows["explicit"]["apply_s"], "operations": 0}
        explicit = rows["explicit"]
        for name, row in rows.items():
            gained = implicit_s - row["apply_s"]
            whole = (explicit["s"] + factor_s) / (row["s"] + factor_s)
            print(
                f"{side:3d} {name:28s} {1e3 * row['s']:9.1f} ms   over explicit {explicit['s'] / row['s']:6.2f}   with factor {whole:5.2f}",
                f"  operations {row['operations'] / explicit['operations']:6.3f}   over stepped {row['s'] / rows['stepped']['s']:6.2f}",
                f"  pays off after {row['s'] / gained if gained > 0 else np.inf:8.0f}",
                flush=True,
            )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        facts = {"n": k.shape[0], "m": b.shape[0], "factor_s": factor_s, "implicit apply_s": implicit_s, "peak GB so far": peak}
        found[str(side)] = {**facts, **rows}
        print(f"{side:3d}", facts)
    print(json.dumps(found))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
