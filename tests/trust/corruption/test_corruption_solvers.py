"""The solvers against SciPy, and what depends on values and what does not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, diags_array, tril
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import bicgstab, cg, spsolve, spsolve_triangular

from armillary.errors import InputError
from armillary.trust.corruption import Csr, Processor
from armillary.trust.corruption.matrices.built_in import KINDS
from armillary.trust.corruption.matrices.csr import in_range
from armillary.trust.corruption.solvers.kinds import SOLVERS
from armillary.trust.corruption.solvers.solver import Solver
from armillary.trust.corruption.solvers.spgemm import DROP
from armillary.trust.corruption.solvers.sssp import Sssp


def drawn(kind: str, rows: int = 100) -> Csr:
    return KINDS[kind](rows, np.random.default_rng(1))


def ended(name: str, matrix: Csr, seed: int = 0) -> Solver:
    solver = SOLVERS[name](matrix, np.random.default_rng(seed), Processor())
    while solver.advance():
        assert solver.windows < 1000
    return solver


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_matrices_are_what_they_should_be(kind: str) -> None:
    matrix = drawn(kind, 300)
    assert matrix.symmetric() == (kind != "web")
    assert in_range(matrix.columns, matrix.pointers)
    again = drawn(kind, 300)
    assert np.array_equal(matrix.values, again.values)
    if kind != "web":
        assert np.linalg.eigvalsh(matrix.scipy().toarray()).min() > 0
    if kind == "rmat":
        degrees = np.diff(matrix.pointers)
        assert degrees.max() > 5 * np.median(degrees)


def test_power_iteration_is_scipys() -> None:
    matrix = drawn("delaunay")
    solver = SOLVERS["spmv"](matrix, np.random.default_rng(0), Processor())
    x = solver.state().copy()
    while solver.advance():
        pass
    for _ in range(24):
        x = matrix.scipy() @ x
        x /= np.linalg.norm(x)
    np.testing.assert_allclose(solver.state(), x, rtol=1e-12)


@pytest.mark.parametrize("kind", ["poisson-2d", "banded", "rmat", "delaunay"])
def test_krylov_solvers_solve_and_take_scipys_iterations(kind: str) -> None:
    matrix = drawn(kind)
    for name, theirs, slack in (("cg", cg, 1), ("bicgstab", bicgstab, 4)):
        solver = ended(name, matrix)
        iterations: list[int] = []
        expected = spsolve(matrix.scipy().tocsc(), solver.b)  # type: ignore[attr-defined]
        theirs(matrix.scipy(), solver.b, rtol=1e-8, callback=lambda _, seen=iterations: seen.append(1))  # type: ignore[attr-defined]
        np.testing.assert_allclose(solver.state(), expected, atol=1e-6 * np.abs(expected).max())
        assert abs(solver.windows - len(iterations)) <= slack


def test_jacobi_and_substitution_are_scipys() -> None:
    matrix = drawn("banded")
    a = matrix.scipy()
    jacobi = ended("jacobi", matrix)
    x = np.zeros(matrix.rows)
    for _ in range(24):
        x = x + (jacobi.b - a @ x) / a.diagonal()  # type: ignore[attr-defined]
    np.testing.assert_allclose(jacobi.state(), x, rtol=1e-12, atol=1e-14)
    solver = ended("trisolve", matrix)
    expected = spsolve_triangular(csr_array(tril(a)), solver.b)  # type: ignore[attr-defined]
    np.testing.assert_allclose(solver.state(), expected, rtol=1e-12)


def test_ranks_are_the_fixed_point() -> None:
    for kind in ("web", "rmat"):
        matrix = drawn(kind)
        solver = ended("pagerank", matrix)
        size = abs(matrix.scipy()).toarray()
        p = size / size.sum(0)
        expected = np.linalg.solve(np.eye(matrix.rows) - 0.85 * p, 0.15 * solver.jump)  # type: ignore[attr-defined]
        np.testing.assert_allclose(solver.state(), expected, atol=1e-7)
        assert solver.state().sum() == pytest.approx(1, abs=1e-6)


def test_distances_are_scipys() -> None:
    matrix = drawn("rmat")
    solver = ended("sssp", matrix, 4)
    assert isinstance(solver, Sssp)
    lengths = Csr(solver.values, solver.columns, solver.pointers).scipy()
    lengths = csr_array(lengths - diags_array(lengths.diagonal()))
    np.testing.assert_allclose(solver.state(), shortest_path(lengths, method="BF", indices=solver.source), rtol=1e-12)


def test_the_square_is_scipys_without_small_entries() -> None:
    for kind in ("delaunay", "web"):
        solver = ended("spgemm", drawn(kind))
        a = Csr(solver.values, solver.columns, solver.pointers).scipy()
        c = (a @ a).toarray()
        limit = DROP * np.abs(solver.values).max()
        kept = np.where(np.abs(c) >= limit, c, 0.0)
        found = solver.state().reshape(-1, 3)
        np.testing.assert_allclose(found[:, 0], kept.sum(1), rtol=1e-12, atol=1e-12)
        assert found[:, 1].tolist() == (kept != 0).sum(1).tolist()
        np.testing.assert_allclose(found[:, 2], kept @ (1.0 + np.arange(a.shape[0])), rtol=1e-12, atol=1e-9)


def test_a_halved_weight_changes_the_fronts_of_six_vertices() -> None:
    """0-1 (4), 0-2 (1), 2-1 (2), 1-3 (1), 2-4 (5), 3-4 (1), 4-5 (1), both ways; then 2-4 has 2.5."""
    edges = [(0, 1, 4.0), (0, 2, 1.0), (1, 2, 2.0), (1, 3, 1.0), (2, 4, 5.0), (3, 4, 1.0), (4, 5, 1.0)]
    found = []
    for halved in (False, True):
        row, column, value = zip(*[e for a, b, w in edges for e in ((a, b, w), (b, a, w))])
        matrix = Csr.of(coo_array((value, (row, column)), shape=(6, 6)))
        solver = Sssp(matrix, np.random.default_rng(0), Processor())
        solver.values[:] = matrix.values
        solver.start(0)
        if halved:
            solver.values[(solver.values == 5.0)] = 2.5
        while solver.advance():
            pass
        found.append((solver.sizes, solver.state().tolist()))
    # Fronts by hand: {0}, {1, 2}, {3, 1, 4}, {3, 5}, {4}, {5}; and {0}, {1, 2}, {3, 1, 4}, {3, 5}.
    assert found == [([1, 2, 3, 2, 1, 1, 0], [0, 3, 1, 4, 5, 6]), ([1, 2, 3, 2, 0], [0, 3, 1, 4, 3.5, 4.5])]


@pytest.mark.parametrize("name", SOLVERS)
def test_what_depends_on_values_is_what_the_kernel_says(name: str) -> None:
    """Other values on the same pattern: fixed kernels count the same, to the last branch."""
    matrix = drawn("delaunay", 150)
    rng = np.random.default_rng(8)
    other = Csr(matrix.values * rng.uniform(0.9, 1.1, len(matrix.values)), matrix.columns, matrix.pointers)
    found = []
    for one in (matrix, other):
        solver = SOLVERS[name](one, np.random.default_rng(2), Processor())
        if name == "sssp":
            solver.values *= rng.uniform(0.5, 2.0, len(solver.values)) if one is other else 1.0
        windows = []
        more = True
        while more:
            more = solver.advance()
            windows.append(solver.core.read().tolist())
        found.append(windows)
    same = found[0] == found[1]
    assert same == (SOLVERS[name].control == "fixed") or SOLVERS[name].control == "iterations"


@pytest.mark.parametrize("name", SOLVERS)
def test_counting_changes_no_result(name: str) -> None:
    matrix = drawn("poisson-2d", 64)
    found = []
    for counting in (True, False):
        solver = SOLVERS[name](matrix, np.random.default_rng(2), Processor(counting=counting))
        while solver.advance():
            pass
        found.append(solver.state().copy())
    assert np.array_equal(*found)


@pytest.mark.parametrize("bad", [
    (np.array([-1, 0]), np.array([0, 1, 2])), (np.array([0, 2]), np.array([0, 1, 2])), (np.array([0, 1]), np.array([0, 3, 2])),
    (np.array([0, 1]), np.array([-1, 1, 2])),
])  # fmt: skip
def test_indices_out_of_range_are_seen(bad: tuple[np.ndarray, np.ndarray]) -> None:
    assert not in_range(*bad)
    assert in_range(np.array([0, 1]), np.array([2, 0, 2]))  # Odd, and safe: a row without entries.


def test_matrices_that_do_not_fit_are_refused() -> None:
    for matrix, said in (
        (csr_array(np.ones((2, 3))), "found 2 × 3; expected a square matrix"), (csr_array((3, 3)), "found 0 entries"),
        (csr_array(np.ones((2, 2)) * 1j), "complex"), (csr_array(np.array([[1, np.nan], [0, 1]])), "found nan in row 0"),
        (csr_array(np.ones((1, 1))), "found 1 rows"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            Csr.of(matrix)
