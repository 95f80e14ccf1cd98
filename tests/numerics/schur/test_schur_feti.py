"""Tests of total FETI: elements and kernels by hand, gluing, the operator, and whole solutions against a direct one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import cg, spsolve

from armillary.errors import InputError
from armillary.numerics.schur import Mesh, SchurAssembler, bisected, decompose, grid, grid_parts, read_mesh, solve, total_feti
from armillary.numerics.schur.feti.decomposition import inside
from armillary.numerics.schur.feti.meshes import checked_parts, from_meshio
from armillary.numerics.schur.feti.pcpg import DualOperator, LocalDual, Projector
from armillary.numerics.schur.feti.physics import kernel, load, stiffness
from armillary.numerics.schur.feti.solver import as_mesh, expected_iterations, pays


def direct(problem: object) -> np.ndarray:
    k, f, free = problem.whole()  # type: ignore[attr-defined]
    u = np.zeros(len(f))
    u[free] = spsolve(k[free][:, free].tocsc(), f[free])
    return u


def difference(u: np.ndarray, v: np.ndarray) -> float:
    return float(np.linalg.norm(u - v) / np.linalg.norm(v))


def test_one_triangle_by_hand() -> None:
    points, cells = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([[0, 1, 2]])
    k = stiffness(points, cells, "heat", np.array([2.0])).toarray()
    np.testing.assert_allclose(k, [[2, -1, -1], [-1, 1, 0], [-1, 0, 1]], atol=1e-15)
    np.testing.assert_allclose(load(points, cells, "heat"), [1 / 6] * 3)
    # Stretching along x in plane strain has the energy ½ uᵀKu = ½ area (λ + 2μ), with E = 1 and ν = 0.3.
    elastic = stiffness(points, cells, "elasticity", np.ones(1)).toarray()
    u = np.array([0, 0, 1.0, 0, 0, 0])
    assert u @ elastic @ u == pytest.approx(0.5 * (0.3 / (1.3 * 0.4) + 2 / 2.6))


@pytest.mark.parametrize("cells", [(3, 2), (2, 3, 2)])
@pytest.mark.parametrize("physics", ["heat", "elasticity"])
def test_kernels_and_generalised_inverses(cells: tuple[int, ...], physics: str) -> None:
    mesh = grid(*cells)
    assert len(mesh.cells) == np.prod(cells) * (2 if len(cells) == 2 else 6)
    edges = mesh.points[mesh.cells[:, 1:]] - mesh.points[mesh.cells[:, :1]]
    assert abs(np.linalg.det(edges)).sum() == pytest.approx(2 if len(cells) == 2 else 6)
    for s in decompose(mesh, 1, physics).subdomains:  # type: ignore[arg-type]
        k = s.k.toarray()
        assert abs(k @ kernel(mesh.points[s.nodes], physics)).max() < 1e-13  # type: ignore[arg-type]
        assert np.linalg.matrix_rank(k) == len(k) - s.kernel.shape[1]
        assert abs(k @ np.linalg.solve(s.k_reg.toarray(), k) - k).max() < 1e-10


def test_gluing_by_hand() -> None:
    problem = decompose(grid(2, 2), grid_parts((2, 2), (2, 2)))
    whole = sparse.lil_array((problem.multipliers, 16))
    for i, s in enumerate(problem.subdomains):
        for row, multiplier in enumerate(s.multipliers):
            whole[multiplier, 4 * i : 4 * i + 4] = s.b[[row]].toarray()
    b = whole.toarray()
    # Four nodes are on two subdomains each, the middle is on four (a chain of three), and three nodes are held: ten rows.
    assert b.shape == (4 + 3 + 3, 16)
    assert np.linalg.matrix_rank(b) == len(b)
    assert set(np.abs(b).sum(axis=1).tolist()) == {1.0, 2.0}
    continuous = np.concatenate([problem.mesh.points[s.nodes, 0] for s in problem.subdomains])
    assert abs(b @ continuous).max() == 0.0


@pytest.mark.parametrize(("dimension", "physics", "side"), [(3, "heat", 3), (2, "elasticity", 4), (3, "elasticity", 2)])
def test_a_subdomain_inside_others_is_the_middle_one(dimension: int, physics: str, side: int) -> None:
    cells = (3 * side,) * dimension
    middle = decompose(grid(*cells), grid_parts(cells, (3,) * dimension), physics, only=3**dimension // 2).subdomains[0]  # type: ignore[arg-type]
    k, b = inside(physics, dimension, side)  # type: ignore[arg-type]
    assert sorted(map(tuple, b.toarray())) == sorted(map(tuple, middle.b.toarray()))
    # Stiffness scales by h^(d−2).
    scale = (1 / 3) ** (dimension - 2)
    ours, theirs = SchurAssembler(k, b)(), SchurAssembler(middle.k_reg, middle.b)()
    assert np.linalg.matrix_rank(ours) == np.linalg.matrix_rank(theirs)
    assert difference(np.linalg.eigvalsh(k.toarray() * scale)[-3:], np.linalg.eigvalsh(middle.k_reg.toarray())[-3:]) < 0.1


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("physics", ["heat", "elasticity"])
def test_total_feti_is_the_direct_solution(physics: str, jump: bool) -> None:
    parts = grid_parts((32, 32), (4, 4))
    coefficient = np.where(parts % 3 == 0, 1e4, 1.0) if jump else None
    problem = decompose(grid(32, 32), parts, physics, coefficient=coefficient)  # type: ignore[arg-type]
    u, report = solve(problem, "stepped", 1e-10)
    assert difference(u, direct(problem)) < 1e-8
    assert report.subdomains == report.assembled == 16
    assert report.residual <= 1e-10


@pytest.mark.parametrize("dual", ["explicit", "explicit-sparse", "augmented", "implicit", "auto"])
def test_every_dual_operator_solves_the_same(dual: str) -> None:
    problem = decompose(grid(8, 4, 4), grid_parts((8, 4, 4), (4, 2, 2)), "elasticity")
    u, report = solve(problem, dual)
    assert difference(u, direct(problem)) < 1e-8
    assert report.iterations > 1


def test_one_subdomain_and_one_that_is_in_pieces() -> None:
    mesh = grid(6, 6)
    u, _ = total_feti(mesh, 1, "elasticity")
    assert difference(u, direct(decompose(mesh, 1, "elasticity"))) < 1e-8
    centres = mesh.centres[:, 0]
    striped = np.where((centres < 1 / 3) | (centres > 2 / 3), 0, 1)
    assert len(np.unique(checked_parts(mesh, striped))) == 3
    u, report = total_feti((mesh.points, mesh.cells), striped)
    assert report.subdomains == 3
    assert difference(u, direct(decompose(mesh, striped))) < 1e-8
    u, _ = total_feti(mesh, 7, held=np.array([24]))
    assert difference(u, direct(decompose(mesh, 7, held=np.array([24])))) < 1e-8


def test_the_operator_is_symmetric_and_the_implicit_one() -> None:
    problem = decompose(grid(8, 8, 8), grid_parts((8, 8, 8), (2, 2, 2)))
    assemblers = [SchurAssembler(s.k_reg, s.b) for s in problem.subdomains]
    dual = DualOperator([LocalDual(a, s.multipliers, a()) for a, s in zip(assemblers, problem.subdomains)], problem.multipliers)
    implicit = DualOperator([LocalDual(a, s.multipliers, None) for a, s in zip(assemblers, problem.subdomains)], problem.multipliers)
    projector = Projector(problem)
    x = projector(np.random.default_rng(0).normal(size=(problem.multipliers)))
    assert abs(projector.g.T @ x).max() < 1e-12
    assert difference(dual(x), implicit(x)) < 1e-10
    for local in dual.locals:
        assert np.array_equal(local.matrix, local.matrix.T)
        assert np.linalg.eigvalsh(local.matrix).min() > -1e-12
    # SciPy's solver on the projected operator finds the same multipliers as ours would.
    operator = sparse.linalg.LinearOperator(dual.operator().shape, matvec=lambda v: projector(dual(projector(v))), dtype=float)
    found, info = cg(operator, projector(dual(x)), rtol=1e-12)
    assert info == 0
    assert difference(projector(dual(found)), projector(dual(x))) < 1e-9


def test_auto_assembles_only_where_it_pays() -> None:
    problem = decompose(grid(8, 8), grid_parts((8, 8), (2, 2)))
    assemblers = [SchurAssembler(s.k_reg, s.b).symbolic() for s in problem.subdomains]
    assert not any(pays(assemblers, 0))
    assert all(pays(assemblers, 10**9))
    assert expected_iterations(problem) == 14


def test_partitions() -> None:
    mesh = grid(8, 4)
    parts = bisected(mesh, 4)
    assert np.bincount(parts).tolist() == [16] * 4
    assert np.bincount(bisected(mesh, 3)).tolist() == [21, 21, 22]
    assert np.array_equal(bisected(mesh, 1), np.zeros(64))


def test_meshes_of_meshio() -> None:
    square = grid(2, 2)
    flat = np.column_stack((square.points, np.full(len(square.points), 3.0)))
    blocks = [SimpleNamespace(type="line", data=np.array([[0, 1]])), SimpleNamespace(type="triangle", data=square.cells)]
    found = from_meshio(SimpleNamespace(points=flat, cells=blocks))
    assert np.array_equal(found.points, square.points)
    assert np.array_equal(as_mesh(SimpleNamespace(points=flat, cells=blocks, cells_dict={})).cells, square.cells)
    with pytest.raises(InputError, match="found cells quad"):
        from_meshio(SimpleNamespace(points=flat, cells=[*blocks, SimpleNamespace(type="quad", data=np.zeros((1, 4), int))]))
    bent = flat + np.arange(len(flat))[:, None] * np.array([0, 0, 1.0])
    with pytest.raises(InputError, match="leave the plane"):
        from_meshio(SimpleNamespace(points=bent, cells=blocks))


def test_bad_problems_are_refused(tmp_path: object) -> None:
    mesh = grid(2, 2)
    for call, says in (
        (lambda: total_feti(mesh, np.zeros(7, int)), "one entry for each of 8 cells"),
        (lambda: total_feti(mesh, np.full(8, -1)), "whole numbers"),
        (lambda: total_feti(mesh, 9), "expected 1 to 8"),
        (lambda: total_feti(mesh, 1, "heet"), "unknown physics"),  # type: ignore[arg-type]
        (lambda: total_feti(mesh, 1, coefficient=-np.ones(8)), "coefficient"),
        (lambda: total_feti(mesh, 1, held=np.array([99])), "held nodes"),
        (lambda: total_feti(mesh, 1, tol=0.0), "tol"),
        (lambda: total_feti(grid(8, 8), 4, most_iterations=1), "after 1 iterations"),
        (lambda: total_feti((np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), np.array([[0, 1, 2]])), 1), "cell 0 has no volume"),
        (lambda: total_feti(Mesh(mesh.points, mesh.cells + 5), 1), "cells name nodes"),
        (lambda: read_mesh("missing.msh"), "no such file"),
        (lambda: total_feti(mesh, 1, dual="steppd"), "unknown method"),
    ):
        with pytest.raises(InputError, match=says):
            call()
