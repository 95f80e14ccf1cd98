"""Assembly of linear tetrahedra on a CUDA device with CuPy and PyTorch arrays, and weights for it.

python benchmarks/gpu/assembly.py [elements] checks small meshes against the host, times every strategy, and prints one JSON object.
python benchmarks/gpu/assembly.py train FOLDER [meshes] measures the catalogue on the device and trains weights tagged with its name.
Needs CuPy or PyTorch with CUDA; training needs PyTorch and Numba.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from armillary import arrays
from armillary.numerics.assembly import Assembler, Plan, build, problem_of
from armillary.numerics.assembly.assembling.device import ON_DEVICE, DeviceAssembly
from armillary.numerics.assembly.assembling.strategy import STRATEGIES
from armillary.numerics.assembly.meshes.mesh import Mesh
from armillary.numerics.assembly.workload import catalogue
from armillary.timing import timed


def libraries() -> dict[str, Any]:
    """The array libraries that see a device."""
    found: dict[str, Any] = {}
    if find_spec("cupy") is not None:
        found["cupy"] = import_module("cupy")
    if find_spec("torch") is not None and import_module("torch").cuda.is_available():
        found["torch"] = import_module("torch")
    return found


def host(mesh: Mesh, element: str, physics: str, given: np.ndarray) -> np.ndarray:
    """The values of the matrix by the host's kernels, or where Numba is missing by PyTorch on the host."""
    if find_spec("numba") is not None:
        return np.asarray(Assembler(mesh.points, mesh.cells, element, physics, "row-gather")(given).data)
    torch = import_module("torch")
    found = Assembler(torch.tensor(mesh.points), torch.tensor(mesh.cells), element, physics, "coo-sort", torch)(given)
    return np.asarray(found.values().numpy())


def check(name: str, xp: Any) -> float:
    """The largest relative difference from the host's matrix over elements, physics and strategies."""
    worst = 0.0
    for cell, element in (("triangle", "P1"), ("tetra", "P1"), ("hexahedron", "Q1"), ("tetra", "P2")):
        mesh = build(Plan("perturbed", cell, element, "poisson", 2000))
        given = np.linspace(1, 2, mesh.elements)
        for physics in ("poisson", "mass", "reaction-diffusion", "elasticity"):
            expected = host(mesh, element, physics, given)
            for way in ON_DEVICE:
                found = Assembler(mesh.points, mesh.cells, element, physics, way, xp)(given)
                data = arrays.to_host(found.values() if name == "torch" else found.data)
                difference = float(np.abs(data - expected).max() / np.abs(expected).max())
                worst = max(worst, difference)
                assert difference < 1e-12, (name, cell, element, physics, way, difference)
    return worst


def seconds_of(one: DeviceAssembly, repeats: int = 5) -> float:
    """Median seconds of a numeric assembly, the device idle on both sides."""
    values = one._put(one.problem.work.coefficients)
    one.numeric(values)
    return timed(lambda: one.numeric(values), one.points, min_seconds=0, min_calls=repeats).median


def timings(elements: int) -> dict[str, Any]:
    """Seconds by library, family and strategy."""
    found: dict[str, Any] = {}
    for name, xp in libraries().items():
        found[name] = {"difference from the host": check(name, xp)}
        for family in ("structured", "renumbered"):
            problem = problem_of(build(Plan(family, "tetra", "P1", "poisson", elements)))
            for way in ON_DEVICE:
                if way == "row-gather" and name == "torch" and elements > 4_000_000:
                    continue  # Batches hold every element matrix and the order of its entries.
                one = DeviceAssembly(problem, way, problem.work.points, xp)
                took = seconds_of(one)
                found[name][f"{family} {way}"] = took
                found["device"] = one.device
                print(f"{name:6s} {family:11s} {way:15s} {took:9.5f} s  {problem.elements / took / 1e6:9.1f} M elements/s", flush=True)
                del one
    return found


def train(folder: Path, meshes: int) -> None:
    """Measures the catalogue with the first library and trains; a strategy that a device lacks counts as ten times the slowest."""
    from armillary.numerics.assembly import features
    from armillary.numerics.assembly.selecting.table import Table, spread_out
    from armillary.numerics.assembly.selecting.training import train_all

    xp = next(iter(libraries().values()))
    numbers, pictures, seconds, families, device = [], [], [], [], ""
    chosen = spread_out(catalogue(), meshes)
    for count, plan in enumerate(chosen, start=1):
        problem = problem_of(build(plan), plan.physics)
        took = {}
        for way in ON_DEVICE:
            one = DeviceAssembly(problem, way, problem.work.points, xp)
            took[way], device = seconds_of(one, 3), one.device
        line = [took.get(name, 10 * max(took.values())) for name in STRATEGIES]
        seen = features(problem)
        numbers.append(seen.numbers)
        pictures.append(seen.pictures)
        seconds.append(np.log(line + line))
        families.append(plan.family)
        print(f"{count}/{len(chosen)} {plan.name}: {min(took, key=took.__getitem__)}", flush=True)
    facts = {"machine": device, "meshes": len(chosen)}
    table = Table(tuple(families), np.array(numbers), np.array(pictures), np.array(seconds), device, facts)
    train_all(table, folder, tell=lambda line: print(line, flush=True))
    table.save(folder / "with_pictures.npz", with_pictures=True)


def main() -> None:
    """Times, or trains."""
    if not libraries():
        raise SystemExit("needs CuPy, or PyTorch with a CUDA device")
    if sys.argv[1:2] == ["train"]:
        train(Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 120)
        return
    print(json.dumps(timings(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)))


if __name__ == "__main__":
    main()
