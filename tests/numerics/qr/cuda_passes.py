"""Passes of kernels factor as the host does, on a CUDA device where there is one and under Triton's interpreter elsewhere.

`test_qr_cuda.py` runs this in a process of its own, because the interpreter is chosen once, before Triton is imported. By hand:
TRITON_INTERPRET=1 python -m pytest tests/numerics/qr/cuda_passes.py
"""

from __future__ import annotations

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="Triton is not installed")
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device, and not under Triton's interpreter", allow_module_level=True)

from armillary.errors import InputError  # noqa: E402
from armillary.numerics.qr import Breakdown, matrix, tall_qr  # noqa: E402
from armillary.numerics.qr import cholqr2 as cholqr2_file  # noqa: E402
from armillary.numerics.qr import lu_cholqr2 as lu_file  # noqa: E402
from armillary.numerics.qr.factors import cuda_factors, tall  # noqa: E402
from armillary.numerics.qr.factors.triangles import pivot_order, upper_cholesky, upper_factor  # noqa: E402
from armillary.numerics.qr.ranks.rows import sampled_rows  # noqa: E402

METHODS = ("lu-cholqr2", "cholqr2", "auto")


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Lets the kernels take blocks on the host too, and notes which methods ended with them."""
    if DEVICE == "cpu":
        # The interpreter pays per program.
        monkeypatch.setattr(cuda_factors, "_CHUNK", 256)
        for place in (lu_file, cholqr2_file, tall):
            monkeypatch.setattr(place, "cuda_passes", lambda a, pivoted: cuda_factors.Passes(a, pivoted) if is_block(a) else None)
    found: list[bool] = []
    for method in (lu_file.LuCholQr2, cholqr2_file.CholQr2, tall.Auto):
        monkeypatch.setattr(method, "on_device", noting(method.on_device, found))
    return found


def noting(inner, found):
    def on_device(self, a):
        factors = inner(self, a)
        if is_block(a):
            found.append(factors is not None)
        return factors

    return on_device


def is_block(a) -> bool:
    return not isinstance(a, np.ndarray) and a.shape[1] <= cuda_factors.MOST_COLUMNS


def put(a):
    return torch.from_numpy(a).to(DEVICE)


def got(*found):
    return tuple(x.cpu().numpy() for x in found)


def errors(a, q, r):
    return np.linalg.norm(q.T @ q - np.eye(a.shape[1])), np.linalg.norm(q @ r - a) / np.linalg.norm(a)


def normal(m, n, seed=0):
    return np.random.default_rng(seed).normal(size=(m, n))


@pytest.mark.parametrize("method", METHODS)
def test_three_four_five(method, taken):
    q, r, _ = tall_qr(put(np.array([[3.0], [4.0]])), None, method)
    assert got(q, r)[1].tolist() == [[5.0]]
    np.testing.assert_allclose(got(q)[0], [[0.6], [0.8]], rtol=4e-16)
    assert all(taken)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (50, 3), (65, 33)])
def test_triangles_are_those_of_lapack(m, n):
    a = normal(m, n)
    upper, lower = cuda_factors.Passes(put(a), pivoted=True).triangles()
    sample = a[sampled_rows(m, n)]
    np.testing.assert_allclose(upper.matrix, upper_factor(sample[pivot_order(sample)])[0], atol=1e-13 * n)
    left = np.linalg.solve(upper.matrix.T, a.T).T
    np.testing.assert_allclose(lower.matrix, upper_cholesky(left.T @ left), atol=1e-11)
    np.testing.assert_allclose(lower.diagonal, np.diagonal(left.T @ left), rtol=1e-10)
    (first,) = cuda_factors.Passes(put(a), pivoted=False).triangles()
    np.testing.assert_allclose(first.matrix, upper_cholesky(a.T @ a), atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("m", "n"), [(5, 5), (70, 2), (131, 21)])
def test_factors_are_those_of_the_host(method, m, n, taken):
    a = normal(m, n)
    x = put(a)
    q, r, info = tall_qr(x, None, method)
    host_q, host_r, host_info = tall_qr(a, None, method)
    assert info.method == host_info.method
    assert torch.equal(x, put(a))
    again = tall_qr(x, None, method)
    assert torch.equal(q, again[0])
    assert torch.equal(r, again[1])
    q, r = got(q, r)
    orthogonality, residual = errors(a, q, r)
    assert orthogonality < 2e-15 * np.sqrt(n)
    assert residual < 2e-15
    np.testing.assert_allclose(r, host_r, atol=1e-12 * np.abs(host_r).max())
    np.testing.assert_allclose(q, host_q, atol=1e-11)
    assert all(taken)


@pytest.mark.parametrize("method", ["lu-cholqr2", "auto"])
def test_columns_that_nearly_agree(method, taken):
    a = matrix("near-dependent", 200, 12, np.random.default_rng(0))
    q, r, info = tall_qr(put(a), None, method)
    orthogonality, residual = errors(a, *got(q, r))
    assert info.method == "lu-cholqr2"
    assert info.condition > 1e12
    assert orthogonality < 1e-14
    assert residual < 2e-15
    assert any(taken)


@pytest.mark.parametrize("method", METHODS)
def test_powers_of_two_in_the_columns_come_back_bit_by_bit(method, taken):
    a = normal(70, 10)
    powers = 2.0 ** np.random.default_rng(1).integers(-60, 60, 10)
    q, r, _ = tall_qr(put(a), None, method)
    other_q, other_r, _ = tall_qr(put(a * powers), None, method)
    assert torch.equal(q, other_q)
    assert np.array_equal(got(r)[0] * powers, got(other_r)[0])
    assert all(taken)


@pytest.mark.parametrize("method", METHODS)
def test_what_the_kernels_cannot_take_goes_the_other_way(method, taken):
    a = normal(60, 5)
    a[41, 3] = np.nan
    with pytest.raises(InputError, match="row 41, column 3"):
        tall_qr(put(a), None, method)
    a[:, 3] = 0.0
    with pytest.raises(Breakdown, match="column 3"):
        tall_qr(put(a), None, method)
    # Squares of these numbers are below the range, though not below that of a scaled column.
    a = normal(60, 5) * np.array([1.0, 1e-200, 1.0, 1e-320, 1.0])
    if method != "cholqr2":
        assert errors(a, *got(*tall_qr(put(a), None, method)[:2]))[0] < 1e-13
    assert not any(taken)


def test_blocks_that_no_inverse_divides_well_go_the_other_way(taken):
    a = matrix("kahan", 200, 32, np.random.default_rng(0))
    q, r, info = tall_qr(put(a), None, "lu-cholqr2")
    assert info.method == "lu-cholqr2"
    assert max(errors(a, *got(q, r))) < 1e-13
    assert not any(taken)


def test_growth_of_u_goes_the_other_way(taken):
    a = matrix("wilkinson", 100, 24, np.random.default_rng(0))
    q, r, _ = tall_qr(put(a), None, "lu-cholqr2")
    assert max(errors(a, *got(q, r))) < 1e-13
    assert not any(taken)


@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("m", "n"), [(20_003, 64), (100_000, 63), (9_001, 48), (1 << 17, 64)])
def test_large_blocks_on_a_device(method, m, n, taken):
    a = normal(m, n)
    q, r, _ = tall_qr(put(a), None, method)
    orthogonality, residual = errors(a, *got(q, r))
    assert orthogonality < 2e-15 * np.sqrt(n)
    assert residual < 3e-15
    assert all(taken)
