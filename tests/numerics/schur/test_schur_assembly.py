"""Tests of Schur complements by hand and against a dense oracle, of counted work, of updates, and of bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from armillary.errors import InputError
from armillary.numerics.schur import Augmented, Explicit, ExplicitSparse, SchurAssembler, Stepped, decompose, grid, grid_parts
from armillary.numerics.schur.complement.factor import order_and_factor
from armillary.numerics.schur.complement.staircase import bounds, minimum_work, staircase

ASSEMBLING = ("stepped", "explicit", "explicit-sparse", "augmented")


def tridiagonal(n: int) -> sparse.csc_array:
    return sparse.diags_array([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1]).tocsc()


def rows_of(columns: list[int], n: int) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), n))


def dense_schur(k: sparse.csc_array, b: sparse.csr_array) -> np.ndarray:
    return b.toarray() @ np.linalg.solve(k.toarray(), b.toarray().T)


def difference(f: np.ndarray, g: np.ndarray) -> float:
    return float(np.linalg.norm(f - g) / np.linalg.norm(g))


@pytest.fixture(scope="module")
def cube() -> SchurAssembler:
    """A floating cube inside others with 512 unknowns, where columns share pivots because several rows are at one edge node."""
    s = decompose(grid(14, 14, 14), grid_parts((14, 14, 14), (2, 2, 2)), only=7).subdomains[0]
    return SchurAssembler(s.k_reg, s.b).symbolic()


@pytest.fixture(scope="module")
def square() -> SchurAssembler:
    s = decompose(grid(48, 48), grid_parts((48, 48), (3, 3)), "elasticity", only=4).subdomains[0]
    return SchurAssembler(s.k_reg, s.b).symbolic()


@pytest.mark.parametrize("method", ASSEMBLING)
def test_three_unknowns_by_hand(method: str) -> None:
    f = SchurAssembler(tridiagonal(3), rows_of([0, 2], 3), method)()
    np.testing.assert_allclose(f, [[0.75, 0.25], [0.25, 0.75]], rtol=1e-15)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("blocks", ["dense", "sparse"])
@pytest.mark.parametrize("prune", ["none", "rows", "cols", "both"])
def test_every_strategy_gives_the_same(cube: SchurAssembler, chunk: int, blocks: str, prune: str) -> None:
    expected = dense_schur(cube.k, cube.b)
    for trsm, syrk in itertools.product(("split-factor", "split-rhs"), ("squares", "stairs")):
        if trsm == "split-rhs" and (prune != "rows" or (chunk == 1 and blocks == "dense")):
            continue  # Pruning is the split factor's; a dense solve for every single column takes long.
        method = Stepped(trsm=trsm, syrk=syrk, prune=prune, blocks=blocks, trsm_chunk=chunk, syrk_chunk=chunk)  # type: ignore[arg-type]
        assert difference(cube.with_method(method)(), expected) < 1e-12


@pytest.mark.parametrize("partition", ["count", "minimum-work"])
@pytest.mark.parametrize("syrk", ["squares", "stairs"])
def test_every_partition_gives_the_same(square: SchurAssembler, partition: str, syrk: str) -> None:
    method = Stepped(partition=partition, syrk=syrk, trsm_chunk=5, syrk_chunk=3)  # type: ignore[arg-type]
    assert difference(square.with_method(method)(), dense_schur(square.k, square.b)) < 1e-11


@pytest.mark.parametrize("method", [*ASSEMBLING, Augmented(subtree=1), Augmented(subtree=10_000), ExplicitSparse(batch=3)])
def test_every_method_meets_the_dense_oracle(cube: SchurAssembler, square: SchurAssembler, method: object) -> None:
    for assembler in (cube, square):
        f = assembler.with_method(method)()  # type: ignore[arg-type]
        assert difference(f, dense_schur(assembler.k, assembler.b)) < 1e-11
        assert np.array_equal(f, f.T)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 40), m=st.integers(1, 30), chunk=st.integers(1, 50))
def test_random_matrices(seed: int, n: int, m: int, chunk: int) -> None:
    rng = np.random.default_rng(seed)
    a = sparse.random_array((n, n), density=min(1.0, 2 / n), rng=rng)
    k = sparse.csc_array(a @ a.T + (1 + rng.uniform()) * sparse.eye_array(n))
    b = sparse.random_array((m, n), density=0.2, rng=rng).tolil()
    b[np.arange(m), rng.integers(0, n, m)] = 1.0
    expected = dense_schur(k, sparse.csr_array(b))
    for method in (Stepped(trsm_chunk=chunk, syrk_chunk=chunk), Stepped("split-rhs", "stairs", trsm_chunk=chunk), Augmented(subtree=chunk)):
        assert difference(SchurAssembler(k, b, method, general=True)(), expected) < 1e-9


def test_minimum_work_by_hand() -> None:
    np.testing.assert_allclose(minimum_work(4), [0, 1, 1.73205, 2.35285, 2.90812], atol=1e-5)
    assert bounds(1000, "minimum-work", 4).tolist() == [0, 344, 596, 809, 1000]
    assert bounds(1000, "minimum-work", 4, reverse=True).tolist() == [0, 191, 404, 656, 1000]
    assert bounds(10, "size", 4).tolist() == [0, 4, 8, 10]
    assert bounds(10, "count", 4).tolist() == [0, 2, 5, 8, 10]


@settings(deadline=None, max_examples=30)
@given(n=st.integers(20, 5000), count=st.integers(2, 12), seed=st.integers(0, 2**32 - 1))
def test_minimum_work_is_least(n: int, count: int, seed: int) -> None:
    def work(p: np.ndarray) -> float:
        return float(np.sum(np.diff(p) * p[1:] ** 2))

    best = minimum_work(count) / minimum_work(count)[-1]
    other = np.sort(np.random.default_rng(seed).uniform(size=count - 1))
    assert work(best) <= work(np.concatenate(([0.0], other, [1.0]))) + 1e-12


def test_staircase_by_hand() -> None:
    b = sparse.csr_array(np.array([[0, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0.0]]))
    # Unknowns 0 to 3 stand at places 2, 1, 0, 3, so the first places of the rows are 3, 0, 2, 1.
    found = staircase(b, np.array([2, 1, 0, 3]))
    assert found.columns.tolist() == [1, 3, 2, 0]
    assert found.pivots.tolist() == [0, 1, 2, 3]
    assert found.trails.tolist() == [0, 1, 2, 3]
    late = staircase(b[[0, 0]], np.array([2, 1, 0, 3]))
    assert late.pivots.tolist() == [3, 3]
    assert late.columns.tolist() == [0, 1]
    assert late.trails.tolist() == [-1, -1, -1, 1]


def test_counted_work_follows_the_formula(cube: SchurAssembler) -> None:
    method = Stepped(trsm_chunk=50, syrk_chunk=64)
    assembler = cube.with_method(method)
    # Elimination of the pattern gives the entries of the factor that may differ from zero.
    order = cube.ordering.order
    lower = np.zeros(cube.k.shape, bool)
    lower[cube.k.tocoo().coords] = True
    lower = lower[np.ix_(order, order)]
    for j in range(len(lower)):
        below = np.flatnonzero(lower[j + 1 :, j]) + j + 1
        lower[np.ix_(below, below)] = True
    x0 = np.zeros((lower.shape[0], cube.b.shape[0]))
    x0[cube.ordering.position] = cube.b.T.toarray()
    pivots = np.sort((x0 != 0).argmax(axis=0))
    n, solve, product = len(lower), 0, 0
    for start in range(0, n, 50):
        end = min(start + 50, n)
        alive = int((pivots < end).sum())
        rows = int(lower[end:, start:end].any(axis=1).sum())
        solve += (end - start) ** 2 * alive + 2 * rows * (end - start) * alive
    for start in range(0, n, 64):
        end = min(start + 64, n)
        alive = int((pivots < end).sum())
        product += (end - start) * alive * (alive + 1)
    assert assembler.work.solve == solve
    assert assembler.work.product == product
    m = cube.b.shape[0]
    assert cube.with_method("explicit").work.total == n * n * m + n * m * (m + 1)
    assert cube.with_method(Stepped(prune="none", trsm_chunk=50)).work.solve > solve
    assert cube.with_method(Stepped(prune="both", trsm_chunk=50)).work.solve <= solve


def test_a_diagonal_matrix_needs_no_updates() -> None:
    k = sparse.diags_array(np.arange(1.0, 31.0)).tocsc()
    assembler = SchurAssembler(k, sparse.eye_array(30).tocsr(), Stepped(trsm_chunk=4, blocks="dense"))
    np.testing.assert_allclose(assembler(), np.diag(1 / np.arange(1.0, 31.0)), rtol=1e-14)
    assert assembler.work.updates == 0
    assert assembler.work.solve == sum((min(s + 4, 30) - s) ** 2 * min(s + 4, 30) for s in range(0, 30, 4))


def test_a_triangle_takes_a_third_of_the_product() -> None:
    n = 1000
    assembler = SchurAssembler(sparse.eye_array(n).tocsc(), sparse.eye_array(n).tocsr(), Stepped(syrk_chunk=n // 100))
    assert assembler.work.product / (n * n * (n + 1)) == pytest.approx(1 / 3, rel=0.05)


def test_the_share_of_work_falls_with_the_side() -> None:
    shares = []
    for side in (6, 9, 13):
        s = decompose(grid(*(2 * side,) * 3), grid_parts((2 * side,) * 3, (2, 2, 2)), only=7).subdomains[0]
        assembler = SchurAssembler(s.k_reg, s.b, Stepped(blocks="dense"))
        shares.append(assembler.work.total / assembler.with_method(Explicit()).work.total)
    assert shares[0] > shares[1] > shares[2]


def test_update_keeps_the_symbolic_phase() -> None:
    k, b = tridiagonal(50), rows_of([0, 7, 49], 50)
    assembler = SchurAssembler(k, b)
    assembler.symbolic()
    first = assembler()
    assert (assembler.symbolic_runs, assembler.numeric_runs) == (1, 1)
    values = assembler.k.data * 3.0
    np.testing.assert_allclose(assembler.update(values)(), first / 3, rtol=1e-13)
    other = k + sparse.diags_array(np.linspace(0, 1, 50)).tocsc()
    assert difference(assembler.update(other)(), dense_schur(other, b)) < 1e-13
    assert (assembler.symbolic_runs, assembler.numeric_runs) == (1, 3)
    assert difference(assembler.operator() @ np.eye(3), dense_schur(other, b)) < 1e-13
    implicit = SchurAssembler(k, b, "implicit").update(other)
    assert difference(implicit.operator() @ np.eye(3), dense_schur(other, b)) < 1e-13


def test_update_of_zeros_that_become_entries() -> None:
    # The pattern of panels comes from the pattern of K, not from which values of the first factor happened to vanish.
    k = tridiagonal(40).tolil()
    k[0, 39] = k[39, 0] = 1.0
    k = k.tocsc()
    zeros = k.copy()
    zeros.data[abs(zeros.data) == 1] = 0.0
    assembler = SchurAssembler(zeros, rows_of([3, 20, 39], 40), Stepped(trsm_chunk=5, blocks="dense"))
    np.testing.assert_allclose(assembler(), np.eye(3) / 2, rtol=1e-14)
    raised = k + 8 * sparse.eye_array(40)
    assert difference(assembler.update(raised)(), dense_schur(raised, assembler.b)) < 1e-13
    assert assembler.symbolic_runs == 1


def test_static_condensation() -> None:
    k, b = tridiagonal(9), rows_of([2, 5], 9)
    a22 = np.array([[4.0, 1.0], [1.0, 5.0]])
    expected = a22 - dense_schur(k, b)
    np.testing.assert_allclose(SchurAssembler(k, b).schur(a22), expected, rtol=1e-13)
    np.testing.assert_allclose(SchurAssembler(k, b).schur(sparse.csr_array(a22)), expected, rtol=1e-13)
    lower = SchurAssembler(k, b)(alpha=-2.0, mirror=False)
    np.testing.assert_allclose(lower, np.tril(-2 * dense_schur(k, b)), rtol=1e-13)


def test_torch_tensors_come_back() -> None:
    torch = pytest.importorskip("torch")
    s = decompose(grid(8, 8, 8), grid_parts((8, 8, 8), (2, 2, 2)), only=7).subdomains[0]
    expected = dense_schur(s.k_reg, s.b)
    like = torch.zeros(0, dtype=torch.float64)
    for method in (Stepped(trsm_chunk=20, syrk_chunk=30), Stepped("split-rhs", "stairs", trsm_chunk=20), "explicit", "explicit-sparse"):
        f = SchurAssembler(s.k_reg, s.b, method, like=like)()
        assert isinstance(f, torch.Tensor)
        assert difference(f.numpy(), expected) < 1e-12
    assert isinstance(SchurAssembler(s.k_reg, s.b, xp=torch)(), torch.Tensor)


def test_factor_is_the_matrix(cube: SchurAssembler) -> None:
    ordering, factor = order_and_factor(cube.k)
    product = (factor.lower @ factor.lower.T).toarray()
    permuted = cube.k.toarray()[np.ix_(ordering.order, ordering.order)]
    assert abs(product - permuted).max() < 1e-14 * abs(permuted).max() * 10
    pattern = sparse.csc_array((np.ones(len(ordering.rows)), ordering.rows, ordering.indptr), shape=permuted.shape).toarray()
    strictly_lower = np.tril(factor.lower.toarray(), -1)
    assert not ((strictly_lower != 0) & (pattern == 0)).any()


@pytest.mark.parametrize(
    ("k", "b", "says"),
    [
        (np.ones((2, 3)), np.ones((1, 2)), "square"),
        (np.array([[2.0, 1.0], [0.5, 2.0]]), np.eye(2), "differ by 0.5"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), np.eye(2), "not positive definite: pivot 1"),
        (np.array([[1.0, -1.0], [-1.0, 1.0]]), np.eye(2), "not positive definite: pivot"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), np.eye(2), "NaN"),
        (np.eye(2), np.array([[1.0, 0.0], [0.0, 0.0]]), "row 1 is zero"),
        (np.eye(2), np.array([[1.0, 0.5]]), "row 0: found 0.5"),
        (np.eye(2), np.ones((1, 3)), "3 columns; expected 2"),
        (np.eye(2), "B", "found str"),
        (np.eye(2) * 1j, np.eye(2), "complex"),
    ],
)  # fmt: skip
def test_bad_matrices_are_refused(k: np.ndarray, b: np.ndarray, says: str) -> None:
    with pytest.raises(InputError, match=says):
        SchurAssembler(k, b)()


def test_other_bad_input() -> None:
    k, b = tridiagonal(4), rows_of([0], 4)
    for call, says in (
        (lambda: SchurAssembler(k, b, "steped"), "did you mean"),
        (lambda: SchurAssembler(k, b).update(np.ones(3)), "found 3 values"),
        (lambda: SchurAssembler(k, b).update(np.eye(4)), "another pattern"),
        (lambda: SchurAssembler(k, b).schur(np.eye(3)), "A22"),
        (lambda: SchurAssembler(k, b, "implicit")(), "assembles nothing"),
        (lambda: SchurAssembler(k, b).symbolic().update(-k).factor, "not positive definite"),
    ):
        with pytest.raises(InputError, match=says):
            call()
    assert SchurAssembler(k, np.array([[0.5, 0, 0, 2.0]]), general=True)().shape == (1, 1)
