"""Tests of the techniques, of files, of blocks out of sparse matrices, and of the advice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from selinv_programs import random_blocks

from armillary.arena import Case
from armillary.errors import InputError
from armillary.numerics.selinv import BlockArrow, advise, factor, selected_inverse
from armillary.numerics.selinv.arena import selinv
from armillary.numerics.selinv.costs.work import balance_from_flops, elimination, inversion
from armillary.numerics.selinv.inversion.grading import reference
from armillary.numerics.selinv.inversion.method import Problem
from armillary.numerics.selinv.takahashi import symbolic
from armillary.numerics.selinv.workload import matern, read_blocks, spatio_temporal
from armillary.numerics.selinv.workload import random_blocks as drawn

RNG = np.random.default_rng(7)


def awkward() -> dict[str, BlockArrow]:
    rng = np.random.default_rng(3)
    return {
        "field": spatio_temporal(7, 4, 3, rng),
        "random": drawn(6, 5, 2, rng),
        "complex": drawn(6, 5, 2, rng, "complex"),
        "unequal": drawn(6, 5, 2, rng, sizes=(5, 1, 3, 5, 4, 2)),
        "unequal complex": drawn(5, 4, 0, rng, "complex", sizes=(1, 4, 2, 3, 1)),
        "no arrow": drawn(6, 5, 0, rng),
        "one block": drawn(1, 5, 2, rng),
        "single numbers": drawn(9, 1, 1, rng),
    }


@pytest.mark.parametrize("name", selinv.techniques)
@pytest.mark.parametrize("matrix", awkward())
def test_every_technique_gives_the_entries_of_a_dense_inverse(name: str, matrix: str) -> None:
    blocks = awkward()[matrix]
    whole = blocks.to_dense()
    inverse = np.linalg.inv(whole)
    answer = selinv.make(name).invert(Problem(blocks, ranks=min(3, (blocks.n + 1) // 2)))  # type: ignore[attr-defined]
    found = answer.inverse.to_sparse().toarray()
    assert np.abs(found - inverse)[whole != 0].max() < 1e-11 * np.abs(inverse).max()
    assert answer.logdet == pytest.approx(np.linalg.slogdet(whole)[1], rel=1e-11)


@pytest.mark.parametrize("case", [c for c in selinv.built_in("tiny") if "gpu" not in c.kinds], ids=lambda case: case.name)
def test_serinv_is_accurate_on_every_case(case: Case) -> None:
    values = selinv.execute(selinv.make("serinv"), case.at(0, 0)).values  # type: ignore[union-attr]
    assert values["error"] < (1e-4 if case.name == "ill-conditioned" else 1e-11)
    assert values["bytes_per_rank"] > 0


def test_flops_by_hand() -> None:
    # The factor takes b³/3, one triangular solve b³ and one product 2b³; the fill adds a solve and two products. The inverse takes 9b³ or 19b³.
    assert elimination(30, 0).flops == pytest.approx(30**3 * (1 / 3 + 1 + 2))
    assert elimination(30, 0, fill=True).flops / elimination(30, 0).flops == pytest.approx(2.5)
    assert inversion(30, 0).flops == 9 * 30**3
    assert inversion(30, 0, fill=True).flops == 19 * 30**3
    assert balance_from_flops(30, 0) == pytest.approx((25 / 3 + 19) / (10 / 3 + 9))


def test_the_pattern_of_a_factor_is_that_of_elimination() -> None:
    matrix = sp.random_array((30, 30), density=0.08, rng=np.random.default_rng(2))
    matrix = sp.csc_array(matrix + matrix.T + 30 * sp.eye_array(30))
    order = np.random.default_rng(5).permutation(30)
    pointers, rows = symbolic(matrix, order)
    pattern = np.zeros((30, 30), bool)
    pattern[order[:, None], order[None, :]] = matrix.toarray() != 0
    for k in range(30):
        below = np.flatnonzero(pattern[:, k] & (np.arange(30) > k))
        pattern[np.ix_(below, below)] = True
    for j in range(30):
        assert rows[pointers[j] : pointers[j + 1]].tolist() == np.flatnonzero(pattern[:, j] & (np.arange(30) > j)).tolist()


def test_the_reference_is_better_than_float64() -> None:
    blocks = drawn(6, 4, 1, RNG, condition=1e10)
    found = reference(blocks.to_sparse(), np.random.default_rng(0))
    flint = pytest.importorskip("flint")
    whole = blocks.to_dense()
    flint.ctx.prec = 400
    exact = flint.arb_mat(whole.tolist()).inv()
    for j, values in zip(found.columns, found.values):
        rows = found.matrix.indices[found.matrix.indptr[j] : found.matrix.indptr[j + 1]]
        truth = np.array([float(exact[int(i), int(j)].mid()) for i in rows])
        assert np.abs(values - truth).max() <= 1e-14 * np.abs(truth).max()


def test_the_field_has_the_variance_that_it_should() -> None:
    # In the middle of a fine grid, far from the border, a Matérn field of this precision has variance 1.
    variances = np.diag(np.linalg.inv(matern(25, reach=0.3).toarray())).reshape(25, 25)
    assert variances[12, 12] == pytest.approx(1.0, abs=0.1)


def test_posterior_of_a_regression_by_hand() -> None:
    # One point, one day: field u ~ N(0, 1/q), y = u + β + e; the precision is [[q + τ, τ], [τ, τ + 0.001]].
    blocks = spatio_temporal(1, 1, 1, RNG, correlation=0.0)
    q = float(matern(1).toarray()[0, 0])
    assert blocks.to_dense() == pytest.approx(np.array([[q + 4, 4], [4, 4.001]]))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 8), b=st.integers(1, 6), a=st.integers(0, 3), seed=st.integers(0, 99))
def test_dense_blocks_are_found_again(n: int, b: int, a: int, seed: int) -> None:
    blocks = random_blocks(n, b, a, seed)
    again = BlockArrow.from_sparse(blocks.to_sparse(), block=b, arrow=a)
    for name in ("diagonal", "lower", "arrow", "tip"):
        assert np.array_equal(getattr(again, name), getattr(blocks, name))
    found = BlockArrow.from_sparse(blocks.to_sparse())
    np.testing.assert_array_equal(found.to_dense(), blocks.to_dense())
    if n > 3 + 2 * a:
        assert (found.b, found.a) == (b, a)


def test_block_sizes_of_a_field_are_found() -> None:
    blocks = spatio_temporal(20, 5, 4, RNG)
    found = BlockArrow.from_sparse(blocks.to_sparse())
    assert (found.n, found.b, found.a, found.sizes) == (20, 25, 4, ())


def test_unequal_blocks_are_padded_and_come_back() -> None:
    matrix = drawn(4, 5, 1, RNG, sizes=(5, 2, 4, 3)).to_sparse()
    blocks = BlockArrow.from_sparse(matrix, block=[5, 2, 4, 3], arrow=1)
    assert (blocks.b, blocks.sizes, blocks.order) == (5, (5, 2, 4, 3), 15)
    f = factor(blocks)
    assert f.logdet() == pytest.approx(np.linalg.slogdet(matrix.toarray())[1])
    x = selected_inverse(f)
    np.testing.assert_allclose(x.diagonal(), np.diag(np.linalg.inv(matrix.toarray())), rtol=1e-12)
    np.testing.assert_allclose(f.solve(np.arange(15.0)), np.linalg.solve(matrix.toarray(), np.arange(15.0)), rtol=1e-10)
    assert x.to_sparse().shape == (15, 15)


BAD = random_blocks(4, 3, 1).to_dense()


@pytest.mark.parametrize(
    ("matrix", "how", "says"),
    [
        (BAD, {"block": 5, "arrow": 1}, "blocks of 5 do not tile the 12 rows before the arrow of 1"),
        (BAD, {"block": [3, 3, 3], "arrow": 1}, "add up to 9; expected sizes from 1 that tile the 12"),
        (BAD, {"block": 2, "arrow": 1}, r"one block from the diagonal at \(4, 0\), \(4, 1\), \(5, 0\) and .* more; .*\(block=3 fits\)"),
        (BAD, {"block": 3, "arrow": 13}, "arrow of 13 rows; expected fewer than the 13"),
        (BAD, {"block": "three", "arrow": 1}, "block: found 'three'"),
        (BAD, {"block": 0, "arrow": 1}, "block of 0"),
        (BAD + np.eye(13, k=1), {}, r"\(0, 1\) is not the conjugate of \(1, 0\)"),
        (np.where(np.eye(13) > 0, np.nan, BAD), {}, r"found nan at \(0, 0\)"),
        (BAD[:5], {}, r"shape \(5, 13\); expected a square"),
        (np.array("no"), {}, "expected a SciPy sparse array"),
    ],
)
def test_bad_matrices(matrix: np.ndarray, how: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        BlockArrow.from_sparse(sp.csr_array(matrix) if matrix.ndim else matrix, **how)


def test_bad_blocks() -> None:
    good = random_blocks(4, 3, 2)
    parts = {"diagonal": good.diagonal, "lower": good.lower, "arrow": good.arrow, "tip": good.tip}
    for name, bad, says in [
        ("diagonal", good.diagonal[:, :2], "expected \\(n, b, b\\)"),
        ("lower", good.lower[:2], "found lower of shape \\(2, 3, 3\\); expected \\(3, 3, 3\\)"),
        ("arrow", good.arrow[:, :1], "expected \\(4, 2, 3\\)"),
        ("tip", good.tip[:1], "found arrow of shape|found tip of shape"),
        ("lower", good.lower.astype(np.int64), "found int64 in lower"),
        ("lower", good.lower.astype(np.float32), "found float32 in lower"),
    ]:
        with pytest.raises(InputError, match=says):
            BlockArrow(**{**parts, name: bad})
    with pytest.raises(InputError, match="sizes"):
        BlockArrow(**parts, sizes=(3, 4, 3, 3))
    for name in parts:
        bad = parts[name].copy()
        bad[(0,) * bad.ndim] = np.inf
        with pytest.raises(InputError, match=f"infinity or NaN in {name}"):
            factor(BlockArrow(**{**parts, name: bad}))
    skew = good.diagonal.copy()
    skew[2, 0, 1] += 1
    with pytest.raises(InputError, match="diagonal block 2 differs from its adjoint"):
        factor(BlockArrow(**{**parts, "diagonal": skew}))


def test_a_small_file_cannot_ask_for_much_memory() -> None:
    far = sp.coo_array((np.ones(2), ([0, 1_000_000], [1_000_000, 0])), shape=(2_000_000, 2_000_000)) + 9 * sp.eye_array(2_000_000)
    with pytest.raises(InputError, match="GB of this machine"):
        BlockArrow.from_sparse(far, arrow=0, block=1_000_000)


def test_files(tmp_path: Path) -> None:
    blocks = random_blocks(6, 3, 2)
    np.savez(tmp_path / "blocks.npz", diagonal=blocks.diagonal, lower=blocks.lower, arrow=blocks.arrow, tip=blocks.tip)
    np.savez(tmp_path / "plain.npz", diagonal=blocks.diagonal, lower=blocks.lower)
    sp.save_npz(tmp_path / "sparse.npz", blocks.to_sparse())
    scipy.io.mmwrite(tmp_path / "sparse.mtx", blocks.to_sparse())
    assert np.array_equal(read_blocks(tmp_path / "blocks.npz").to_dense(), blocks.to_dense())
    assert read_blocks(tmp_path / "plain.npz").a == 0
    for name in ("sparse.npz", "sparse.mtx"):
        np.testing.assert_allclose(read_blocks(tmp_path / name, "3", "2").to_dense(), blocks.to_dense(), rtol=1e-14)
        assert read_blocks(tmp_path / name, "3,3,6,6", "2").sizes == (3, 3, 6, 6)
    (case,) = selinv.from_file(tmp_path / "sparse.mtx", {"arrow": "2"})
    assert selinv.execute(selinv.make("serinv"), case.at(0, 0)).values["error"] < 1e-12


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"diagonal": np.ones((3, 2, 2))}, "found no array lower"),
        ({"diagonal": np.ones((3, 2, 2)), "lower": np.ones((2, 2, 2)), "arrow": np.ones((3, 1, 2))}, "found no array tip"),
        ({"diagonal": np.ones((3, 2, 2)), "lower": np.ones((1, 2, 2))}, "found lower of shape"),
        ({"diagonal": np.ones((3, 2)), "lower": np.ones((2, 2, 2))}, "found 2 dimensions; expected 3"),
        ({"diagonal": np.ones((3, 2, 2)), "lower": np.ones((2, 2, 2)), "upper": np.ones(2)}, "found upper"),
        ({"diagonal": np.full((3, 2, 2), "x"), "lower": np.ones((2, 2, 2))}, "found an array of <U1; expected numbers"),
        ({"diagonal": np.full((3, 2, 2), np.nan), "lower": np.ones((2, 2, 2))}, "infinity or NaN in diagonal block 0"),
    ],
)
def test_bad_block_files(tmp_path: Path, arrays: dict, says: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match=says) as error:
        read_blocks(tmp_path / "bad.npz")
    assert "bad.npz" in str(error.value)


def test_options_that_do_not_fit_the_matrix(tmp_path: Path) -> None:
    scipy.io.mmwrite(tmp_path / "good.mtx", random_blocks(3, 2, 0).to_sparse())
    wrong = ("block", "4", "do not tile"), ("block", "x", "expected a whole number"), ("ranks", "9", "2·ranks − 1 ≤ blocks")
    for option, value, says in wrong:
        with pytest.raises(InputError, match=says):
            selinv.from_file(tmp_path / "good.mtx", {option: value})


def test_advice_takes_more_ranks_for_longer_chains() -> None:
    short, long = (advise(random_blocks(n, 8, 2), "perlmutter-cpu") for n in (9, 400))
    assert short.best.ranks <= 5
    assert long.best.ranks > short.best.ranks
    assert [c.ranks for c in short.table] == [1, 2, 4, 5]
    assert long.best.seconds == min(c.seconds for c in long.table)
    assert "ranks" in str(long)
    assert long.balance == pytest.approx(balance_from_flops(8, 2))
