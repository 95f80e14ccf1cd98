"""Total FETI solves a finite-element problem on subdomains, with the dual operator assembled or implicit, whichever pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary import arrays
from armillary.errors import InputError
from armillary.tasks import Graph, Threads
from armillary.timing import Stopwatch

from ..complement.assembler import SchurAssembler, method_of
from ..complement.method import Method
from ..implicit import Implicit
from ..stepped import Stepped
from .decomposition import Decomposition, decompose
from .meshes import Mesh, checked_mesh, from_meshio, read_mesh
from .pcpg import DualOperator, LocalDual, Projector, lumped, pcpg, rebuilt, right_sides, subdomain_assembler
from .physics import Physics


@dataclass(frozen=True)
class Report:
    """Figures of a solution: iterations, fall of the projected residual, seconds of each phase, sizes, and how many F_i were assembled."""

    iterations: int
    residual: float
    factor_s: float
    assembly_s: float
    pcpg_s: float
    subdomains: int
    multipliers: int
    assembled: int
    dual: str
    #: The whole dual operator, for SciPy's solvers.
    operator: Any = field(repr=False, default=None)

    @property
    def solve_s(self) -> float:
        """Factorisation, assembly and iterations together."""
        return self.factor_s + self.assembly_s + self.pcpg_s


def total_feti(
    mesh: Any,
    parts: Any,
    physics: Physics = "heat",
    dual: str | Method = "stepped",
    tol: float = 1e-9,
    *,
    coefficient: Any = None,
    held: Any = None,
    like: arrays.Array = None,
    threads: int = 2,
    iterations: int | None = None,
    most_iterations: int = 10_000,
) -> tuple[np.ndarray, Report]:
    """Returns u of the mesh's nodes (unknowns of a node together) and what it took.

    `mesh` is a Mesh, a meshio mesh, a file that meshio reads, or (points, cells); `parts` the number of subdomains or each cell's part.
    `dual` is a method's name, a method, or "auto", which assembles F_i where that pays within the `iterations` expected (without it a
    guess from the size of subdomains). `like` gives kind and device of the assembled matrices. Source 1 or force −1; see `decompose`.
    """
    if not 0 < tol < 1:
        raise InputError(f"found {tol}; expected a number between 0 and 1", where="tol")
    problem = decompose(as_mesh(mesh), parts, physics, coefficient=coefficient, held=held)
    return solve(problem, dual, tol, like=like, threads=threads, iterations=iterations, most_iterations=most_iterations)


def as_mesh(mesh: Any) -> Mesh:
    """Returns a mesh from whatever holds one."""
    if isinstance(mesh, Mesh):
        return checked_mesh(mesh.points, mesh.cells)
    if isinstance(mesh, tuple) and len(mesh) == 2:
        return checked_mesh(*mesh)
    if hasattr(mesh, "points") and hasattr(mesh, "cells_dict"):
        return from_meshio(mesh)
    return read_mesh(mesh)


def solve(
    problem: Decomposition,
    dual: str | Method = "stepped",
    tol: float = 1e-9,
    *,
    like: arrays.Array = None,
    threads: int = 2,
    iterations: int | None = None,
    most_iterations: int = 10_000,
) -> tuple[np.ndarray, Report]:
    """Solves a problem that is torn already; see `total_feti`."""
    method = Stepped() if dual == "auto" else method_of(dual)
    assemblers = [subdomain_assembler(s, method, like) for s in problem.subdomains]
    with Stopwatch() as factoring:
        in_tasks([lambda a=a: a.symbolic() for a in assemblers], threads)  # type: ignore[misc]
    with Stopwatch() as assembling:
        chosen = [method.assembles] * len(assemblers)
        if dual == "auto":
            chosen = pays(assemblers, iterations or expected_iterations(problem))
        locals_ = assembled(problem, assemblers, chosen, threads)
    with Stopwatch() as iterating:
        f = DualOperator(locals_, problem.multipliers)
        projector = Projector(problem)
        d, e = right_sides(problem, locals_)
        found = pcpg(f, d, e, projector, lumped(problem), tol, most_iterations)
        u = rebuilt(problem, locals_, found)
    name = dual if isinstance(dual, str) else type(dual).__name__
    report = Report(
        found.iterations, found.residual, factoring.seconds, assembling.seconds, iterating.seconds, len(problem.subdomains),
        problem.multipliers, sum(chosen), name, f.operator(),
    )  # fmt: skip
    return u, report


def assembled(problem: Decomposition, assemblers: Sequence[SchurAssembler], chosen: Sequence[bool], threads: int = 2) -> list[LocalDual]:
    """Returns F_i of each subdomain that is chosen, as tasks on threads; the others go through their factor."""
    wanted = [a for a, yes in zip(assemblers, chosen) if yes]
    # Panels on a device take turns, so that only one set of them is there, whatever the number of subdomains.
    on_host = all(isinstance(a.like, np.ndarray) for a in wanted)
    matrices = iter(in_tasks(wanted, threads if on_host else 1))
    return [LocalDual(a, s.multipliers, next(matrices) if yes else None) for a, s, yes in zip(assemblers, problem.subdomains, chosen)]


def in_tasks(bodies: Sequence[Callable[[], Any]], threads: int) -> list[Any]:
    """Calls each as a task on `threads` threads and returns the results; BLAS has one thread in each, or all where there is one task."""
    with blas_threads(len(bodies), threads):
        return unpinned_tasks(bodies, threads)


def blas_threads(bodies: int, threads: int) -> AbstractContextManager[Any]:
    """Pins BLAS to the threads of `tasks` tasks. Finding its libraries takes milliseconds, so start a clock inside."""
    if threads < 1:
        raise InputError(f"found {threads}; expected at least 1", where="threads")
    return threadpool_limits(threads if bodies < 2 else 1)


def unpinned_tasks(bodies: Sequence[Callable[[], Any]], threads: int) -> list[Any]:
    """Calls each assembler as a task and returns the results; BLAS is left as it is."""
    if len(bodies) < 2 or threads == 1:
        return [body() for body in bodies]
    graph = Graph()
    tasks = [graph.add(body) for body in bodies]
    run = graph.run(Threads(threads)).raise_first()
    return [run.result(task) for task in tasks]


def expected_iterations(problem: Decomposition) -> int:
    """Returns a guess from the cells H/h along a subdomain's side: 7·√(H/h), half as many again for elasticity; fitted to the built-in
    problems.
    """
    d = problem.mesh.dimension
    cells = len(problem.mesh.cells) / len(problem.subdomains) / (2 if d == 2 else 6)
    return max(1, round((7 if problem.physics == "heat" else 10) * np.sqrt(cells ** (1 / d))))


def pays(assemblers: Sequence[SchurAssembler], iterations: int) -> list[bool]:
    """Returns whether, for each subdomain, assembly and `iterations` applications are faster than as many solves with its factor.

    Rates come from one run on the subdomain with the most work; operations, entries of the factor and of F scale them to the others.
    """
    heaviest = max(assemblers, key=lambda a: a.work.total)
    with threadpool_limits(1):
        with Stopwatch() as watch:
            f = heaviest()
            arrays.synchronise(f)
        per_operation = watch.seconds / max(1, heaviest.work.total)
        x = np.ones(heaviest.b.shape[0])
        explicit = LocalDual(heaviest, np.arange(len(x)), f)
        implicit = LocalDual(heaviest.with_method(Implicit()), explicit.multipliers, None)
        per_entry = _seconds(lambda: explicit.apply(x)) / max(1, len(x) ** 2)
        per_factor_entry = _seconds(lambda: implicit.apply(x)) / heaviest.ordering.entries
    return [
        a.work.total * per_operation + iterations * per_entry * a.b.shape[0] ** 2 < iterations * per_factor_entry * a.ordering.entries
        for a in assemblers
    ]


def _seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    found = []
    for _ in range(repeats):
        with Stopwatch() as watch:
            work()
        found.append(watch.seconds)
    return min(found)
