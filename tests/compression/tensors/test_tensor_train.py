"""The split SVD and tensor trains have the known ranks, keep their bounds, and agree with other decompositions."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.compression.tensors import TT, fold, modes_of, svd, tt_svd, unfold
from armillary.compression.tensors.decomposition import tensor_train
from armillary.compression.tensors.decomposition.modes import balanced
from armillary.compression.tensors.decomposition.split_svd import bidiagonal, truncated
from armillary.compression.tensors.workload import built_in, resnet32_shapes
from armillary.errors import InputError

ENGINES: list[Any] = ["gesdd", "split", "lapack", "plain", "random", "qr"]


def drawn(m: int, n: int, kind: str, dtype: Any = np.float64) -> np.ndarray:
    """Draws a matrix with singular values of some kind."""
    rng = np.random.default_rng(m * 1000 + n)
    k = min(m, n)
    u, _ = np.linalg.qr(rng.normal(size=(m, k)))
    v, _ = np.linalg.qr(rng.normal(size=(n, k)))
    values = {
        "random": rng.random(k) + 0.1,
        "repeated": np.repeat([3.0, 1.0], [k - k // 2, k // 2]),
        "zeros": np.where(np.arange(k) < max(1, k // 3), 1.0, 0.0),
        "tiny": 10.0 ** -np.linspace(0, 300, k),
        "graded": 10.0 ** -np.linspace(0, 14, k),
        "small": np.full(k, 1e-300),
    }[kind]
    return np.asarray((u * values) @ v.T, dtype)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (4, 4), (33, 33), (70, 64), (64, 70), (200, 30), (100, 99)])
@pytest.mark.parametrize("kind", ["random", "repeated", "zeros", "tiny", "graded", "small"])
@pytest.mark.parametrize("engine", ["split", "lapack", "plain"])
def test_the_split_svd_against_numpy(shape: tuple[int, int], kind: str, engine: Any) -> None:
    a = drawn(*shape, kind)
    found = svd(a, engine=engine)
    truth = np.linalg.svd(a, compute_uv=False)
    largest = max(truth[0], 1e-308)
    np.testing.assert_allclose(found.s, truth, rtol=0, atol=1e-12 * largest)
    assert (np.diff(found.s) <= 0).all()
    k = min(shape)
    np.testing.assert_allclose(found.u.T @ found.u, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(found.vt @ found.vt.T, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(found.u * found.s @ found.vt, a, rtol=0, atol=1e-12 * largest)


def test_single_precision() -> None:
    a = drawn(120, 80, "random", np.float32)
    found = svd(a)
    assert found.u.dtype == np.float32
    np.testing.assert_allclose(found.s, np.linalg.svd(a.astype(float), compute_uv=False), atol=1e-5 * found.s[0])


@pytest.mark.parametrize("shape", [(5, 5), (40, 40), (90, 66)])
def test_phase_one_leaves_two_diagonals(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(0).normal(size=shape)
    d, e, u, vt = bidiagonal(a)
    b = u.T @ a @ vt.T
    n = shape[1]
    np.testing.assert_allclose(b, np.diag(d) + np.diag(e, 1), atol=1e-13 * np.linalg.norm(a))
    np.testing.assert_allclose(u.T @ u, np.eye(n), atol=1e-13)
    np.testing.assert_allclose(vt @ vt.T, np.eye(n), atol=1e-13)


@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_zero_on_the_diagonal(at: int) -> None:
    b = np.diag(np.arange(1.0, 9)) + np.diag(np.ones(7), 1)
    b[at, at] = 0.0
    found = svd(b)
    np.testing.assert_allclose(found.s, np.linalg.svd(b, compute_uv=False), atol=1e-13)
    np.testing.assert_allclose(found.u * found.s @ found.vt, b, atol=1e-13)


def test_truncation_by_hand() -> None:
    s = np.array([1.0, 3.0, 2.0, 0.5])
    assert truncated(s, 0.0)[0].tolist() == [1, 2, 0, 3]
    assert [truncated(s, tail)[1] for tail in (0.0, 0.5, 1.0, math.sqrt(1.25), 3.0, 100.0)] == [4, 3, 3, 2, 1, 1]
    assert truncated(s, 0.0, 2)[1] == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sum_has_ranks_two(engine: Any) -> None:
    a = np.indices((5, 6, 7)).sum(axis=0).astype(float)
    train = tt_svd(a, 1e-12, engine=engine)
    assert train.ranks == (1, 2, 2, 1)
    np.testing.assert_allclose(train.full(), a, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_product_has_ranks_one(engine: Any) -> None:
    rng = np.random.default_rng(0)
    x, y, z = rng.normal(size=9), rng.normal(size=8), rng.normal(size=7)
    train = tt_svd(np.einsum("i,j,k", x, y, z), 1e-10, engine=engine)
    assert train.ranks == (1, 1, 1, 1)
    assert 9 * 8 * 7 / train.size == pytest.approx(9 * 8 * 7 / (9 + 8 + 7))


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    eps=st.sampled_from([0.0, 0.01, 0.3, 0.7, 0.99]),
    seed=st.integers(0, 10**6),
    engine=st.sampled_from(ENGINES),
    single=st.booleans(),
)
def test_the_error_is_within_its_bound(shape: list[int], eps: float, seed: int, engine: Any, single: bool) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=shape) * 10.0 ** rng.integers(-20, 20)
    a = a.astype(np.float32) if single else a
    train = tt_svd(a, eps, engine=engine)
    assert train.shape == tuple(shape)
    unit = 1e-5 if single else 1e-12
    off = float(np.linalg.norm((train.full() - a).astype(float).ravel()))
    assert off <= (eps + unit) * float(np.linalg.norm(a.astype(float).ravel()))


def test_split_and_lapack_give_equal_ranks() -> None:
    for tensor in built_in("resnet32", np.random.default_rng(0), "tiny").layers.values():
        trains = [tt_svd(tensor.astype(float), 0.3, engine=e) for e in ("gesdd", "split", "lapack", "plain")]  # type: ignore[arg-type]
        assert len({t.ranks for t in trains}) == 1
        errors = [float(np.linalg.norm(t.full() - tensor)) for t in trains]
        assert errors[0] == pytest.approx(errors[1], rel=1e-9) == pytest.approx(errors[2], rel=1e-9)


def test_against_tensorly() -> None:
    tensorly = pytest.importorskip("tensorly")
    decomposition = pytest.importorskip("tensorly.decomposition")
    a = np.random.default_rng(2).normal(size=(6, 7, 8, 5))
    ours = tt_svd(a, 0.4, engine="gesdd")
    theirs = decomposition.tensor_train(a, rank=list(ours.ranks))
    off = float(np.linalg.norm(tensorly.tt_to_tensor(theirs) - a))
    assert float(np.linalg.norm(ours.full() - a)) == pytest.approx(off, abs=1e-10)
    made = tensorly.tt_tensor.TTTensor(list(ours.cores))
    np.testing.assert_allclose(tensorly.tt_to_tensor(made), ours.full(), atol=1e-12)


def test_weights_that_look_trained_compress_and_noise_does_not() -> None:
    assert len(resnet32_shapes()) == 32
    assert sum(math.prod(shape) for shape in resnet32_shapes()) == 461_872
    rng = np.random.default_rng(0)
    for name, least, most in (("resnet32", 1.5, 100.0), ("gaussian", 0.0, 1.0)):
        work = built_in(name, rng)
        kept = sum(tt_svd(a, 0.3, engine="gesdd").size for a in work.layers.values())
        assert least < work.size / kept < most


def test_arithmetic_of_trains() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 4, 5, 6))
    x, y = tt_svd(a, 0), tt_svd(b, 0)
    np.testing.assert_allclose((x + y).full(), a + b, atol=1e-12)
    np.testing.assert_allclose((x * y).full(), a * b, atol=1e-12)
    np.testing.assert_allclose((2.0 * x).full(), 2 * a, atol=1e-12)
    assert x.dot(y) == pytest.approx(float((a * b).sum()))
    assert x.norm() == pytest.approx(float(np.linalg.norm(a)))
    assert (x + x).ranks == (1, 8, 12, 1)
    assert (x + x).round(1e-10).ranks == x.ranks
    np.testing.assert_allclose((x + x).round(1e-10).full(), 2 * a, atol=1e-9)
    assert np.linalg.norm(x.round(0.3).full() - a) <= 0.3 * np.linalg.norm(a)
    assert TT.from_arrays(x.to_arrays()).ranks == x.ranks


@pytest.mark.parametrize("shape", [(24, 60), (512, 64), (10, 64), (7, 13)])
def test_a_matrix_in_modes(shape: tuple[int, int]) -> None:
    w = np.random.default_rng(0).normal(size=shape)
    out, into = modes_of(shape)
    assert math.prod(out) == shape[0]
    assert math.prod(into) == shape[1]
    np.testing.assert_array_equal(unfold(fold(w, out, into), out, into), w)
    x = np.random.default_rng(1).normal(size=(3, shape[1]))
    np.testing.assert_allclose(tt_svd(fold(w, out, into), 0).matvec(x, out), x @ w.T, atol=1e-10)


def test_balanced_factors() -> None:
    assert balanced(4096, 4) == (8, 8, 8, 8)
    assert balanced(60, 3) == (5, 4, 3)
    assert balanced(13, 3) == (13, 1, 1)
    assert balanced(1, 2) == (1, 1)


def test_a_sketch_of_a_large_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_train, "_LARGE", 100_000)
    monkeypatch.setattr(tensor_train, "_WIDE", 128)
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(1000, 40)) * 0.8 ** np.arange(40)) @ rng.normal(size=(40, 130)) + 1e-3 * rng.normal(size=(1000, 130))
    exact, sketch = tt_svd(a, 0.05, engine="gesdd"), tt_svd(a, 0.05)
    assert np.linalg.norm(sketch.full() - a) <= 0.05 * np.linalg.norm(a)
    assert sketch.ranks[1] <= exact.ranks[1] + 2


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tt_svd(np.ones((2, 2)), -0.1), "eps"),
        (lambda: tt_svd(np.ones((2, 2)), 1.0), "eps"),
        (lambda: tt_svd(np.ones((2, 2)), 0.1, max_rank=0), "max_rank"),
        (lambda: tt_svd(np.ones((2, 2), int)), "cast=True"),
        (lambda: tt_svd(np.ones((2, 2), complex), cast=True), "complex"),
        (lambda: tt_svd(np.array([[1.0, np.nan]])), r"nan at \(0, 1\)"),
        (lambda: tt_svd(np.ones((0, 2))), "none of 0"),
        (lambda: tt_svd(np.ones((2, 2)), engine="magic"), "magic"),  # type: ignore[arg-type]
        (lambda: modes_of((12, 8), ([3, 3], [2, 4])), "product is 9; expected 12"),
        (lambda: TT((np.ones((1, 2, 3)), np.ones((2, 2, 1)))), "core 1"),
        (lambda: svd(np.array([[1.0, np.inf]])), "finite"),
        (lambda: tt_svd(np.ones((2, 2))).matvec(np.ones(3), (2, 1)), "matvec"),
    ],
)
def test_bad_input(call: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


def test_integers_are_cast_where_asked() -> None:
    np.testing.assert_allclose(tt_svd(np.ones((2, 2), int), cast=True).full(), 1.0, rtol=1e-12)


BITS = """
import hashlib
import numpy as np
from armillary.compression.tensors import tt_svd
rng = np.random.default_rng(3)
made = hashlib.sha256()
for shape in ((24, 40, 9), (64, 300), (300, 20)):
    train = tt_svd(rng.normal(size=shape).astype(np.float32), 0.3, engine="plain")
    made.update(repr(train.sweeps).encode() + b"".join(core.tobytes() for core in train.cores))
print(made.hexdigest())
"""


def test_the_plain_engine_gives_the_same_bits_with_every_blas() -> None:
    """The edge processor is charged with the sweeps, and a last bit of BLAS once decided whether there was one more."""
    found = set()
    for kind in ("Haswell", "Prescott"):
        surroundings = {**os.environ, "OPENBLAS_CORETYPE": kind}
        found.add(subprocess.run([sys.executable, "-c", BITS], env=surroundings, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1
