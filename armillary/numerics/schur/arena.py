"""Should my domain-decomposition solver assemble its local Schur complements, how, and after how many iterations does that pay?"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Metric, NotForThisCase

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .method import Method
    from .workload import Work

schur = Arena(
    "numerics/schur",
    question="Should I assemble the Schur complements of my subdomains, how, and after how many iterations does that pay?",
    metrics=[
        Metric("assembly_s", unit="s", better="lower", kind="measured", doc="F of all subdomains, factors given"),
        Metric("assembly_with_factor_s", unit="s", better="lower", kind="measured", doc="the same with the numeric factorisations"),
        Metric("apply_s", unit="s", better="lower", kind="measured", doc="one application of the dual operator"),
        Metric(
            "amortization_iterations", better="lower", kind="measured", scale="difference", unbounded=True,
            doc="applications after which assembly has paid off against implicit; infinite where it never does",
        ),
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
    uses=("armillary.arrays", "armillary.tasks", "armillary.numerics.matrix_files"),
    repeats=3,
)  # fmt: skip

#: Cells along a subdomain's side: the four torn problems, then the three single cubes.
SIDES = {
    "tiny": {"heat-2d": 6, "heat-3d": 3, "elasticity-2d": 4, "elasticity-3d": 2, "smallest": 4, "middle": 6, "largest": 8},
    "small": {"heat-2d": 64, "heat-3d": 10, "elasticity-2d": 32, "elasticity-3d": 5, "smallest": 8, "middle": 12, "largest": 20},
    "large": {"heat-2d": 256, "heat-3d": 25, "elasticity-2d": 128, "elasticity-3d": 10, "smallest": 13, "middle": 20, "largest": 25},
}
GPU_SIDES = (20, 25, 32)


@schur.cases
def cases(scale: str) -> Iterator[Case]:
    """Four problems on 16 subdomains, one cube inside others at three sizes, and cubes on a CUDA device."""
    sides = SIDES[scale]
    for name in ("heat-2d", "heat-3d", "elasticity-2d", "elasticity-3d"):
        physics, _, dimension = name.partition("-")
        parameters = {"physics": physics, "dimension": int(dimension[0]), "side": sides[name]}
        yield Case(name, _torn, parameters, frozenset({physics, dimension, "solve"}))
    for name in ("smallest", "middle", "largest"):
        parameters = {"physics": "heat", "dimension": 3, "side": sides[name]}
        yield Case(f"cube-{name}", _inside, parameters, frozenset({"heat", "3d", "one", name}))
    for side in GPU_SIDES:
        parameters = {"physics": "heat", "dimension": 3, "side": side}
        yield Case(f"gpu-{side}", _inside, parameters, frozenset({"gpu", f"side{side}"}))


@schur.read
def read(
    path: Path, *, b: str = "", general: bool = False, parts: int = 16, partition: str = "", physics: Literal["heat", "elasticity"] = "heat"
) -> Iterator[Case]:
    """K of one subdomain with its `b` (.mtx, .npz, .npy), or a mesh (.msh, .vtk, .vtu, .inp) torn by `partition` (.npy) or into `parts`."""
    from .meshes import SUFFIXES

    if path.suffix.lower() in SUFFIXES:
        made = {"parts": parts, "partition": partition, "physics": physics}
        case = Case(path.name, _mesh, made, frozenset({"file", "solve", physics}), source=path)
    else:
        if not b:
            from armillary.errors import InputError

            raise InputError(f"K needs its B: expected --b with a file, or a mesh ({', '.join(SUFFIXES)})", where=str(path))
        case = Case(path.name, _matrices, {"b": b, "general": general}, frozenset({"file", "one"}), source=path)
    _ = case.workload.assemblers  # A file that cannot be used is refused before anything runs.
    yield case


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

    from .feti import blas_threads, unpinned_tasks
    from .pcpg import DualOperator, LocalDual

    kind: Any = type(method)
    _compiled(kind)
    work: Work = case.workload
    like = _like(case)
    mine = [a.with_method(method).on(like) for a in work.assemblers]
    threads = work.threads
    rows = np.cumsum([0, *(a.b.shape[0] for a in mine)])
    matrices: list[Any] = [None] * len(mine)
    factor_s, assembly_s = work.factor_s, 0.0
    if method.assembles:
        with blas_threads(len(mine), threads):
            matrices = unpinned_tasks(mine, threads)  # Not timed: it meets its memory for the first time.
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
    values = {
        "assembly_s": assembly_s,
        "assembly_with_factor_s": assembly_s + factor_s,
        "apply_s": apply_s,
        "amortization_iterations": 0.0
        if not method.assembles
        else assembly_s / (implicit_s - apply_s)
        if apply_s < implicit_s
        else math.inf,
        "flop_ratio": sum(a.work.total for a in mine) / sum(a.with_method("explicit").work.total for a in mine),
        "error": float(np.linalg.norm(got - expected) / np.linalg.norm(expected)),
    }
    if work.problem is not None:
        from .feti import solve

        values["solve_s"] = solve(work.problem, method, threads=work.threads)[1].solve_s
    return values


@schur.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds of assembly and k applications over k, one panel a case, one line a technique."""
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
    return [panels(found, "Assembly and so many applications", "iterations", "seconds", log_y=True)] if found else []


def _torn(case: Case, rng: np.random.Generator) -> Work:
    from .workload import torn

    return torn(case.parameters["physics"], case.parameters["dimension"], case.parameters["side"])


def _inside(case: Case, rng: np.random.Generator) -> Work:
    from .decomposition import inside
    from .workload import Work

    return Work((inside(case.parameters["physics"], case.parameters["dimension"], case.parameters["side"]),))


def _matrices(case: Case, rng: np.random.Generator) -> Work:
    from .workload import from_matrices

    assert case.source is not None
    return from_matrices(case.source, Path(case.parameters["b"]), case.parameters["general"])


def _mesh(case: Case, rng: np.random.Generator) -> Work:
    from .workload import from_mesh

    assert case.source is not None
    return from_mesh(case.source, case.parameters["parts"], case.parameters["partition"], case.parameters["physics"])


@functools.cache
def _compiled(method: Any) -> None:
    """Compiles what the method calls, on a problem of a few unknowns in 2-D and 3-D."""
    from .feti import solve
    from .workload import torn

    for dimension in (2, 3):
        problem = torn("heat", dimension, 2).problem
        assert problem is not None
        solve(problem, method())


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
