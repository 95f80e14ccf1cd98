"""Finite-element assembly on this machine: 2*10^6 tetrahedra by every strategy, and 2*10^5 beside scikit-fem and SciPy in one run.

python benchmarks/assembly_speed.py [elements [elements beside the others]] prints ratios and one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numba
import numpy as np
from scipy.sparse import coo_array

from armillary.numerics.assembly import Assembler, Plan, build, choose, features, problem_of
from armillary.numerics.assembly.assembling.strategy import STRATEGIES, strategy, structure
from armillary.numerics.assembly.meshes.mesh import Mesh
from armillary.numerics.assembly.selecting.choice import shipped


def best(work: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the fastest of some calls: the machine may be shared."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def large(elements: int) -> dict[str, float]:
    """Seconds by strategy on a perturbed grid, of the symbolic phase, of features and of inference."""
    problem = problem_of(build(Plan("perturbed", "tetra", "P1", "poisson", elements)))
    symbolic = structure(problem, None)
    found = {"elements": float(problem.elements), "symbolic": best(lambda: structure(problem, None), 2)}
    for name in STRATEGIES:
        prepared = strategy(name).prepare(problem, symbolic)
        found[name] = best(lambda prepared=prepared: prepared.numeric(problem.work.coefficients), 3)  # type: ignore[misc]
    seen = features(problem)
    found["features"] = best(lambda: features(problem), 3)
    found["inference"] = best(lambda: shipped().log_seconds(seen), 20)
    return found


def beside(elements: int) -> dict[str, float]:
    """Seconds of the chosen strategy, of scikit-fem's asm with its basis known, and of SciPy's sum of triplets that are there already."""
    mesh = build(Plan("perturbed", "tetra", "P1", "poisson", elements))
    asm = Assembler(mesh.points, mesh.cells, strategy=choose(mesh.points, mesh.cells).strategy)
    work: dict[str, Callable[[], Any]] = {"ours": asm}
    problem = problem_of(mesh, store_elements=True)
    shape = problem.work.stored[0].shape
    rows, columns = (np.broadcast_to(cells, shape).ravel() for cells in (mesh.cells[:, :, None], mesh.cells[:, None, :]))
    values = problem.work.stored[0].ravel()
    work["scipy tocsr alone"] = lambda: coo_array((values, (rows, columns)), shape=(problem.nodes,) * 2).tocsr()
    if find_spec("skfem") is None:
        print("scikit-fem is not installed: left out")
    else:
        work["scikit-fem asm"] = _skfem(mesh)
    found = {name: best(one) for name, one in work.items()}
    return {"elements": float(len(mesh.cells)), **found}


def _skfem(mesh: Mesh) -> Callable[[], Any]:
    skfem, laplace = import_module("skfem"), import_module("skfem.models.poisson").laplace
    basis = skfem.Basis(skfem.MeshTet(mesh.points.T.copy(), mesh.cells.T.astype(np.int64).copy()), skfem.ElementTetP1())
    return lambda: skfem.asm(laplace, basis)


def main() -> None:
    """Prints both tables."""
    sizes = [int(x) for x in sys.argv[1:3]]
    large(2_000)
    first = large(sizes[0] if sizes else 2_000_000)
    second = beside(sizes[1] if len(sizes) > 1 else 200_000)
    fastest = min(first[name] for name in STRATEGIES)
    print(f"{first['elements']:.0f} tetrahedra, {numba.get_num_threads()} threads")
    for name in ("symbolic", *STRATEGIES, "features", "inference"):
        print(f"  {name:16s} {first[name]:9.4f} s  {first[name] / fastest:7.3f} of the fastest assembly")
    print(f"{second['elements']:.0f} tetrahedra")
    for name, seconds in second.items():
        if name != "elements":
            print(f"  {name:18s} {seconds:9.4f} s  {seconds / second['ours']:7.2f}× ours")
    print(json.dumps({"large": first, "beside": second}))


if __name__ == "__main__":
    main()
