"""Tests of exact cases, of the condition sweep, of edges and of bad input for every method."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import qr_programs
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import comm
from armillary.errors import InputError
from armillary.numerics.qr import Breakdown, ImplicitQ, tall_qr
from armillary.numerics.qr.factors.tall import METHODS
from armillary.numerics.qr.workload import FAMILIES, KAPPAS

ALWAYS = ("lu-cholqr2", "tsqr", "householder", "auto")
EVERY = ("auto", *METHODS)


def on_ranks(a, p, method="lu-cholqr2", starts=None, backend="threads", **parameters):
    """Returns Q put together, R (on which all ranks agree), and the rest of rank 0; raises a breakdown as itself."""
    try:
        values = comm.run(qr_programs.factored, a, method, starts, parameters, ranks=p, backend=backend).values
    except comm.RankFailed as failed:
        raise failed.__cause__ from None
    for value in values:
        assert value[1].tobytes() == values[0][1].tobytes()
    return np.concatenate([value[0] for value in values]), values[0][1], values[0][2:]


def errors(a, q, r):
    eye = np.eye(a.shape[1])
    assert np.isfinite(q).all()
    assert np.array_equal(r, np.triu(r))
    assert (np.diagonal(r).real >= 0).all()
    assert not np.diagonal(r).imag.any()
    return np.linalg.norm(eye - q.conj().T @ q), np.linalg.norm(a - q @ r) / np.linalg.norm(a)


@pytest.mark.parametrize("method", EVERY)
def test_three_points_by_hand(method):
    a = np.array([[1.0, 1], [1, 2], [1, 3]])
    q, r, _ = tall_qr(a, None, method)
    np.testing.assert_allclose(r, [[math.sqrt(3), 2 * math.sqrt(3)], [0, math.sqrt(2)]], atol=2e-15)
    half = math.sqrt(0.5)
    np.testing.assert_allclose(q, [[1 / math.sqrt(3), -half], [1 / math.sqrt(3), 0], [1 / math.sqrt(3), half]], atol=1e-15)


@pytest.mark.parametrize("p", [1, *(pytest.param(p, marks=pytest.mark.slow) for p in (2, 3, 8))])
def test_who_fails_at_which_condition(p):
    n = 32
    for kappa in KAPPAS:
        a = qr_programs.whole(f"kappa-{kappa}", 320, n)
        for method in EVERY:
            broke, column = False, -1
            try:
                q, r, _ = on_ranks(a, p, method)
                orthogonality, residual = errors(a, q, r)
                assert residual <= 1e-14 * math.sqrt(n)
            except Breakdown as breakdown:
                broke, orthogonality, column = True, math.inf, breakdown.column
            assert not broke or 0 <= column < n
            good = orthogonality <= 1e-14 * math.sqrt(n)
            size = float(kappa)
            if method in ALWAYS or method == "randomized-cholqr":
                assert good, (method, kappa)
            if method == "lu-cholqr":
                assert orthogonality < 1e-12
            if method in ("cholqr", "cholqr2"):
                assert broke or size <= 1e8
                assert not (method == "cholqr" and good and size > 1e2)
                assert good or method == "cholqr" or size >= 1e8
            if method == "scholqr3":
                assert good if size <= 1e12 else not good
            if method == "mgs":
                assert not broke
                assert orthogonality > 1e-18 * size


@pytest.mark.parametrize("family", [f for f in FAMILIES if not f.startswith("kappa")])
@pytest.mark.parametrize("method", ALWAYS)
def test_other_families_are_orthogonal_to_roundoff(family, method):
    a = qr_programs.whole(family, 1000, 24)
    q, r, _ = on_ranks(a, 3, method)
    orthogonality, residual = errors(a, q, r)
    assert orthogonality <= 1e-14 * math.sqrt(24)
    assert residual <= 1e-14 * math.sqrt(24)
    # Columns of R hold the norms of those of A, however small they are.
    np.testing.assert_allclose(np.linalg.norm(r, axis=0), np.linalg.norm(a, axis=0), rtol=1e-12)


def test_growth_triggers_the_guard_and_q_is_orthogonal_all_the_same():
    a = qr_programs.whole("wilkinson", 500, 60)
    q, r, (method, fallback, _, _) = on_ranks(a, 2)
    assert method == "tsqr"
    assert "L" in fallback
    orthogonality, residual = errors(a, q, r)
    assert orthogonality < 1e-13
    assert residual < 1e-14
    with pytest.raises(Breakdown):
        on_ranks(a, 2, fallback="raise")


@pytest.mark.parametrize("n", [12, 16, 24])
def test_growth_of_u_alone_triggers_the_guard_too(n):
    # L is still small and well conditioned enough, but U holds 2^(n-1) where A holds ones.
    a = qr_programs.whole("wilkinson", 500, n)
    for p in (1, 2, 3):
        q, r, (method, fallback, _, _) = on_ranks(a, p)
        # With more ranks the tournament may find rows that do not grow.
        assert p > 1 or (method == "tsqr" and fallback)
        assert max(errors(a, q, r)) <= 1e-14 * math.sqrt(n)


@pytest.mark.parametrize("pivoting", ["tournament", "local", "none"])
@pytest.mark.parametrize("p", [1, 3, 4])
def test_every_choice_of_pivots(pivoting, p):
    a = qr_programs.whole("kappa-1e10", 700, 12)
    q, r, (method, fallback, _, _) = on_ranks(a, p, pivoting=pivoting)
    assert (method, fallback) == ("lu-cholqr2", "")
    assert max(errors(a, q, r)) < 1e-14


def test_a_bad_sample_is_seen():
    # The rows that matter are those that a random sample misses.
    a = 1e-12 * np.random.default_rng(1).normal(size=(5000, 6))
    a[2500:2506] = np.eye(6) + 0.1
    q, r, (method, fallback, _, _) = on_ranks(a, 2, pivoting="none")
    assert method == "tsqr"
    assert "L" in fallback
    assert max(errors(a, q, r)) < 1e-14
    assert on_ranks(a, 2)[2][0] == "lu-cholqr2"


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_rows_does_not_matter(method):
    a = qr_programs.whole("kappa-1e2", 500, 8)
    shuffled = a[np.random.default_rng(1).permutation(500)]
    np.testing.assert_allclose(on_ranks(shuffled, 2, method)[1], on_ranks(a, 2, method)[1], atol=1e-13)


@pytest.mark.parametrize("method", ["lu-cholqr2", "auto", "lu-cholqr", "mgs"])
def test_powers_of_two_in_the_columns_come_back_bit_by_bit(method):
    a = np.random.default_rng(0).normal(size=(900, 7))
    powers = 2.0 ** np.array([0, 40, -60, 3, -3, 100, -100])
    q, r, _ = on_ranks(a, 3, method)
    scaled_q, scaled_r, _ = on_ranks(a * powers, 3, method)
    assert (r * powers).tobytes() == scaled_r.tobytes()
    assert q.tobytes() == scaled_q.tobytes()


def test_columns_at_the_ends_of_the_range():
    a = np.random.default_rng(0).normal(size=(300, 4))
    powers = np.array([2.0**900, 2.0**-900, 1.0, 2.0**-500])
    q, r, _ = tall_qr(a, None, "lu-cholqr2")
    extreme_q, extreme_r, _ = tall_qr(a * powers, None, "lu-cholqr2")
    assert extreme_q.tobytes() == q.tobytes()
    assert extreme_r.tobytes() == (r * powers).tobytes()
    with pytest.raises(Breakdown):
        tall_qr(a * powers, None, "cholqr2")


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize(
    ("m", "n", "starts"),
    [(50, 1, None), (6, 6, None), (40, 6, (0, 2, 3)), (40, 6, (0, 0, 40)), (7, 6, (0, 3, 5)), (100, 5, (0, 34, 67, 80, 90))],
)
def test_edges(method, m, n, starts):
    a = np.random.default_rng(m).normal(size=(m, n))
    q, r, _ = on_ranks(a, len(starts) if starts else 3, method, starts)
    orthogonality, residual = errors(a, q, r)
    assert residual < 1e-14
    assert orthogonality < (1e-14 if method in ALWAYS else 1e-9)
    expected = np.linalg.qr(a)[1]
    np.testing.assert_allclose(r, expected * np.sign(np.diagonal(expected))[:, None], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_other_types(method, dtype):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(600, 9)).astype(dtype)
    if a.dtype.kind == "c":
        a += 1j * rng.normal(size=a.shape).astype(a.real.dtype)
    q, r, _ = on_ranks(a, 2, method)
    assert q.dtype == r.dtype == dtype
    u = np.finfo(dtype).eps / 2
    orthogonality, residual = errors(a, q, r)
    assert orthogonality < 90 * u
    assert residual < 90 * u


def test_single_precision_survives_its_own_condition():
    a = qr_programs.whole("kappa-1e7", 2000, 16).astype(np.float32)
    q, r, (method, _, _, _) = on_ranks(a, 3)
    assert method == "lu-cholqr2"
    orthogonality, residual = errors(a, q, r)
    assert orthogonality < 5e-6
    assert residual < 5e-6
    with pytest.raises(Breakdown):
        on_ranks(a, 3, "cholqr2")


def test_a_zero_pivot_is_named_or_shifted():
    rng = np.random.default_rng(0)
    a = rng.choice([-1.0, 1.0], size=(64, 4))
    a[:, 2] = a[:, 0]
    for p in (1, 3):
        with pytest.raises(Breakdown, match="column 2") as error:
            on_ranks(a, p)
        assert error.value.column == 2
        q, r, _ = on_ranks(a, p, rank_deficient="shift")
        assert max(errors(a, q, r)) < 1e-14
    for method in ("cholqr2", "mgs"):
        with pytest.raises(Breakdown, match="column 2"):
            on_ranks(a, 2, method)
    a[:, 2] = 0
    with pytest.raises(Breakdown, match="column 2"):
        on_ranks(a, 2)
    _, r, info = tall_qr(a, None, "lu-cholqr2", rank_deficient="shift")
    assert info.shifted == (2,)
    assert 0 <= r[2, 2] < 1e-14


def test_auto_takes_what_is_enough():
    easy, hard = qr_programs.whole("kappa-1e2", 600, 8), qr_programs.whole("kappa-1e12", 600, 8)
    assert on_ranks(easy, 2, "auto")[2] == ("cholqr2", "", 2, 2 * 36 * 8)
    assert on_ranks(hard, 2, "auto")[2] == ("lu-cholqr2", "", 5, 64 * 8 + 3 * 36 * 8)


def test_implicit_q_is_the_explicit_one():
    a = qr_programs.whole("kappa-1e12", 400, 6)
    q, r, _ = tall_qr(a, None, "lu-cholqr2")
    operator, same, _ = tall_qr(a, None, "lu-cholqr2", q="implicit")
    assert isinstance(operator, ImplicitQ)
    assert operator.shape == (400, 6)
    np.testing.assert_allclose(same, r, atol=1e-15)
    x = np.arange(12.0).reshape(6, 2)
    y = np.random.default_rng(0).normal(size=400)
    np.testing.assert_allclose(operator @ x, q @ x, atol=1e-13)
    np.testing.assert_allclose(operator.T @ y, q.T @ y, atol=1e-13)
    np.testing.assert_allclose(operator.explicit(), q, atol=1e-13)
    with pytest.raises(InputError, match="400"):
        _ = operator.H @ y[1:]


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 8), extra=st.integers(0, 20), seed=st.integers(0, 1000), method=st.sampled_from(ALWAYS))
def test_against_fifty_digits(n, extra, seed, method):
    a = np.random.default_rng(seed).normal(size=(n + extra, n))
    _, r, _ = tall_qr(a, None, method)
    with mpmath.workdps(50):
        gram = mpmath.matrix(a.tolist()).T * mpmath.matrix(a.tolist())
        exact = np.array(mpmath.cholesky(gram).T.tolist(), dtype=np.float64)
    # The condition says how far R may move by roundoff in A.
    np.testing.assert_allclose(r, exact, atol=1e-14 * np.linalg.cond(a) * np.linalg.norm(a))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda a, rank: a[:1], "expected at least as many rows"),
        (lambda a, rank: a[:, : 3 - rank] if rank else a, "rank 1: found 2 columns; expected 3 as on rank 0"),
        (lambda a, rank: a.astype(np.int64), "float64"),
        (lambda a, rank: a.astype(np.float32) if rank else a, "rank 1: found float32; expected float64"),
        (lambda a, rank: a[:, 0], "2"),
        (lambda a, rank: a[:, :0], "no columns"),
        (lambda a, rank: np.where(np.arange(3) == 1, np.nan, a) if rank else a, "row 20, column 1: found an infinity or NaN"),
    ],
)
def test_bad_input_is_told_on_every_rank(p, spoil, says):
    def program(ranks):
        block = spoil(np.random.default_rng(ranks.rank).normal(size=(20, 3)), ranks.rank)
        with pytest.raises(InputError, match=says):
            tall_qr(block, ranks)

    if p == 2 or not ("rank 1" in says or "row 20" in says):
        comm.run(program, ranks=p)


def test_unknown_names():
    with pytest.raises(InputError, match="lu-cholqr2"):
        tall_qr(np.ones((3, 1)), None, "lu-cholqr3")
    for how, says in (({"pivoting": "complete"}, "pivoting"), ({"pivoting": "local", "rank_deficient": "shift"}, "tournament")):
        with pytest.raises(InputError, match=says):
            tall_qr(np.ones((3, 1)), None, "lu-cholqr2", **how)
    with pytest.raises(InputError, match="NumPy"):
        tall_qr([[1.0]], None)
