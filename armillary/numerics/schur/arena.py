"""Should my domain-decomposition solver assemble its local Schur complements, how, and after how many iterations does that pay?"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Metric, NotForThisCase, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from .complement.method import Method
    from .workload import Work

schur = Arena(
    "numerics/schur",
    question="Should I assemble the Schur complements of my subdomains, how, and after how many iterations does that pay?",
    telling=["heat-2d", "elasticity-3d", "cube-middle", "cube-largest"],
    metrics=[
        Metric("assembly_s", unit="s", better="lower", kind="measured", doc="assembling F of all subdomains from given factors"),
        Metric("assembly_with_factor_s", unit="s", better="lower", kind="measured", doc="the same, including the numeric factorisations"),
        Metric("apply_s", unit="s", better="lower", kind="measured", doc="one application of the dual operator"),
        Metric("implicit_apply_s", unit="s", better=None, kind="measured",
               doc="one implicit application, timed beside `apply_s` on the same operator"),
        Metric("amortization_iterations", better="lower", kind="measured", scale="difference", unbounded=True,
               doc="assembly_s / (implicit_apply_s - apply_s), the applications after which assembly has paid off; infinite where it "
               "never does"),
        Metric("solve_s", unit="s", better="lower", kind="measured", on=frozenset({"solve"}), doc="factors, assembly and PCPG to 1e-9"),
        Metric("flop_ratio", better="lower", kind="modelled", doc="operations of the assembly, counted exactly, over those of explicit"),
        Metric("error", better="lower", kind="measured", steady=True, scale="difference",
               doc="‖F S − reference‖ / ‖reference‖ for 8 vectors S of ±1"),
    ],
    techniques={
        "stepped": ".stepped:Stepped",
        "explicit": ".explicit:Explicit",
        "explicit-sparse": ".explicit_sparse:ExplicitSparse",
        "augmented": ".augmented:Augmented",
        "implicit": ".implicit:Implicit",
    },
    papers={"stepped": "sparse-schur"},
    baseline="explicit",
    tradeoff=("assembly_s", "apply_s"),
    repeats=3,
)  # fmt: skip

#: Cells along a subdomain's side, of the torn problems and of the single cubes.
SIDES = {
    "tiny": {"heat-2d": 6, "heat-3d": 3, "elasticity-2d": 4, "elasticity-3d": 2},
    "small": {"heat-2d": 64, "heat-3d": 10, "elasticity-2d": 32, "elasticity-3d": 5},
    "large": {"heat-2d": 256, "heat-3d": 25, "elasticity-2d": 128, "elasticity-3d": 10},
}
CUBES = {
    "tiny": {"smallest": 4, "middle": 6, "larger": 7, "largest": 8},
    "small": {"smallest": 8, "middle": 12, "larger": 16, "largest": 20},
    "large": {"smallest": 13, "middle": 20, "larger": 22, "largest": 25},
}
GPU_SIDES = (16, 20, 25, 32)
#: The cases of the tiny scale: one dimension of each physics, one cube, one size on a device.
TINY = ("heat-2d", "elasticity-3d", "cube-middle", "gpu-20")


@schur.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields four problems on 16 subdomains, one cube inside others at four sizes, and cubes on a CUDA device."""
    yield from (case for case in _all_cases(SIDES[scale], CUBES[scale]) if scale != "tiny" or case.name in TINY)


def _all_cases(sides: dict[str, int], cubes: dict[str, int]) -> Iterator[Case]:
    for name, side in sides.items():
        physics, _, dimension = name.partition("-")
        parameters = {"physics": physics, "dimension": int(dimension[0]), "side": side}
        yield Case(name, _torn, parameters, frozenset({physics, dimension, "solve"}))
    for name, side in cubes.items():
        parameters = {"physics": "heat", "dimension": 3, "side": side}
        yield Case(f"cube-{name}", _inside, parameters, frozenset({"heat", "3d", "one", name}))
    for side in GPU_SIDES:
        parameters = {"physics": "heat", "dimension": 3, "side": side}
        yield Case(f"gpu-{side}", _inside, parameters, frozenset({"gpu", f"side{side}"}))


@dataclass(frozen=True)
class Reading:
    """Options: the rest of a subdomain that is given by its matrix, or how a mesh is torn."""

    b: str = parameter("", "the file of the subdomain's B, for a matrix K (.mtx, .npz, .npy)", file=True)
    general: bool = parameter(False, "whether K is not symmetric")
    parts: int = parameter(16, "the number of subdomains into which a mesh is torn", range=(1, 1 << 20))
    partition: str = parameter("", "a .npy file with the subdomain of each cell of a mesh, instead of parts", file=True)
    physics: Literal["heat", "elasticity"] = parameter("heat", "what is solved on a mesh")


@schur.read(Reading)
def read(path: Path, how: Reading) -> Work:
    """Reads K of one subdomain with its B (.mtx, .npz, .npy), or a mesh (.msh, .vtk, .vtu, .inp), which is torn."""
    from .feti.meshes import SUFFIXES
    from .workload import from_matrices, from_mesh

    if path.suffix.lower() in SUFFIXES:
        if how.b:
            raise InputError(f"found {how.b} for a mesh; expected a B with a matrix K only", where="--b")
        work = from_mesh(path, how.parts, how.partition, how.physics)
    else:
        if not how.b:
            raise InputError(f"K needs its B; expected --b with a file, or a mesh ({', '.join(SUFFIXES)})", where=str(path))
        if how.partition:
            raise InputError(f"found {how.partition} for a matrix; expected a partition with a mesh only", where="--partition")
        work = from_matrices(path, Path(how.b), how.general)
    _ = work.assemblers  # A file that cannot be factored is refused before anything runs.
    return work


@schur.own_cases
def own_cases(work: Work, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, which is solved as a whole where it comes from a mesh."""
    if work.problem is None:
        yield Case(name, parameters={"general": how.general}, kinds=frozenset({"file", "one"}))
    else:
        yield Case(name, parameters={"parts": how.parts, "physics": how.physics}, kinds=frozenset({"file", "solve", how.physics}))


@schur.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a tridiagonal K of four rows and a B that picks its ends, in Matrix Market's format."""
    k, b = folder / "K.mtx", folder / "B.mtx"
    head = "%%MatrixMarket matrix coordinate real"
    k.write_text(f"{head} symmetric\n4 4 7\n1 1 2\n2 2 2\n3 3 2\n4 4 2\n2 1 -1\n3 2 -1\n4 3 -1\n")
    b.write_text(f"{head} general\n2 4 2\n1 1 1\n2 4 -1\n")
    return k, {"b": str(b)}


@schur.run
def run(method: Method, case: Case) -> dict[str, float] | NotForThisCase:
    """Assembles against the clock, applies, compares with the reference, and solves the whole problem where there is one."""
    if "gpu" in case.kinds and not _cuda():
        return NotForThisCase("needs PyTorch with a CUDA device")
    if "gpu" in case.kinds and not (method.on_device and method.assembles):
        return NotForThisCase("works on the host")
    if "largest" in case.kinds and type(method).__name__ == "ExplicitSparse":
        return NotForThisCase("a sparse solve for every right-hand side takes minutes here")
    import numpy as np

    from armillary.timing import timed

    from .feti.pcpg import DualOperator, LocalDual
    from .feti.solver import blas_threads, unpinned_tasks

    work: Work = case.workload
    like = _like(case)
    mine = [a.with_method(method).on(like) for a in work.assemblers]
    threads = work.threads
    rows = np.cumsum([0, *(a.b.shape[0] for a in mine)])
    matrices: list[Any] = [None] * len(mine)
    factor_s, assembly_s = work.factor_s, 0.0
    if method.assembles:
        with blas_threads(len(mine), threads):
            matrices = unpinned_tasks(mine, threads)  # Not timed, because it touches its memory for the first time.
            assembly_s = timed(lambda: _waited(unpinned_tasks(mine, threads)), min_seconds=0.3, min_calls=1).median
    places = [np.arange(rows[i], rows[i + 1]) for i in range(len(mine))]
    dual = DualOperator([LocalDual(a, at, f) for a, at, f in zip(mine, places, matrices)], int(rows[-1]))
    implicit = DualOperator([LocalDual(a, at, None) for a, at in zip(mine, places)], int(rows[-1]))
    x = np.ones(int(rows[-1]))
    with blas_threads(1, work.threads):
        apply_s = timed(lambda: dual(x), min_seconds=0.05, min_calls=3).median
        implicit_s = timed(lambda: implicit(x), min_seconds=0.05, min_calls=3).median if method.assembles else apply_s
    probes, expected = work.reference
    got = np.stack([dual.locals[-1].apply(probe) for probe in probes.T], axis=1)
    never_pays = method.assembles and apply_s >= implicit_s
    values = {
        "assembly_s": assembly_s,
        "assembly_with_factor_s": assembly_s + factor_s,
        "apply_s": apply_s,
        "implicit_apply_s": implicit_s,
        "amortization_iterations": math.inf if never_pays else assembly_s / (implicit_s - apply_s) if method.assembles else 0.0,
        "flop_ratio": sum(a.work.total for a in mine) / sum(a.with_method("explicit").work.total for a in mine),
        "error": float(np.linalg.norm(got - expected) / np.linalg.norm(expected)),
    }
    if work.problem is not None:
        from .feti.solver import solve

        values["solve_s"] = solve(work.problem, method, threads=work.threads)[1].solve_s
    return values


@schur.plots
def plots(result: Result) -> Sequence[Any]:
    """Draws the seconds of assembly and k applications over k, with one panel per case and one line per technique."""
    from armillary.figures import panels

    found: dict[str, dict[str, list[tuple[Any, float]]]] = {}
    for case in result.cases:
        lines = {}
        for technique in result.techniques:
            assembly, apply = result.medians(technique, "assembly_with_factor_s"), result.medians(technique, "apply_s")
            if case in assembly and case in apply:
                lines[technique] = [(k, assembly[case] + k * apply[case]) for k in (1, 3, 10, 30, 100, 300, 1000)]
        if lines:
            found[case] = lines
    return [panels(found, "Assembly and k applications, over k", "iterations", "seconds", log_y=True)] if found else []


def _torn(case: Case, rng: np.random.Generator) -> Work:
    from .workload import torn

    return torn(case.parameters["physics"], case.parameters["dimension"], case.parameters["side"])


def _inside(case: Case, rng: np.random.Generator) -> Work:
    from .feti.decomposition import inside
    from .workload import Work

    return Work((inside(case.parameters["physics"], case.parameters["dimension"], case.parameters["side"]),))


@schur.warm_up
def warm_up(method: Method, case: Case) -> None:
    """Compiles what the method calls, on problems of a few unknowns in the case's dimension, or in both where it does not say."""
    from .feti.solver import solve
    from .workload import torn

    for dimension in {2, 3} - {3 if "2d" in case.kinds else 2 if "3d" in case.kinds else 0}:
        problem = torn("heat", dimension, 2).problem
        assert problem is not None
        solve(problem, method)


def _like(case: Case) -> Any:
    if "gpu" not in case.kinds:
        return None
    torch = import_module("torch")
    return torch.zeros(0, dtype=torch.float64, device="cuda")


def _waited(matrices: list[Any]) -> None:
    from armillary import arrays

    arrays.synchronise(*matrices)


@functools.cache
def _cuda() -> bool:
    return find_spec("torch") is not None and bool(import_module("torch").cuda.is_available())
