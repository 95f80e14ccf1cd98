"""Tests of the methods on nasty matrices, of the drop-ins, of the reported accuracy, and of bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.numerics.gemm import Adp, DoubleDouble, Emulated, Float32, Native, Ozaki1Signed, Ozaki2, accuracy, dgemm, emulated_matmul
from armillary.numerics.gemm.products.method import Method
from armillary.numerics.gemm.workload import FAMILIES, pair

flint = pytest.importorskip("flint")
METHODS: list[Method] = [Adp(), Adp(max_slices=20), Ozaki1Signed(), Ozaki2(), Ozaki2(scaling="fast"), Native(), DoubleDouble()]


def rounded_exactly(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the product by FLINT's integers, rounded to float64 once, of finite matrices without subnormal entries."""

    def integers(x: np.ndarray) -> tuple[Any, int]:
        mantissa, exponent = np.frexp(x)
        whole = np.ldexp(mantissa, 53).astype(np.int64)
        lowest = int(np.min(exponent, where=whole != 0, initial=0)) - 53
        return flint.fmpz_mat([[int(w) << int(e) - 53 - lowest if w else 0 for w, e in zip(*row)] for row in zip(whole, exponent)]), lowest

    (left, low_a), (right, low_b) = integers(a), integers(b)
    product = left * right
    shift = low_a + low_b
    out = np.empty((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            value = int(product[i, j])
            out[i, j] = float(value << shift) if shift >= 0 else value / (1 << -shift)
    return out


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("infinite", "not-a-number", "subnormal")])
def test_the_reference_is_right(family: str) -> None:
    a, b = pair(family, 40, np.random.default_rng(1))
    truth = rounded_exactly(a, b)
    if family == "cancelling":
        # Twice the precision is not enough for entries of 2^-40 of their terms to be rounded right, but far more than is compared.
        assert (np.abs(DoubleDouble()(a, b) - truth) <= 1e-6 * 2.0**-53 * (np.abs(a) @ np.abs(b))).all()
    else:
        np.testing.assert_array_equal(DoubleDouble()(a, b), truth)
    found = accuracy(truth, a, b)
    assert found.error_u <= 1.0
    assert found.grade == 3


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", [Adp(), Adp(max_slices=20), Ozaki2(), Native(), DoubleDouble()], ids=str)
def test_every_family_gets_grade_a(family: str, method: Method) -> None:
    a, b = pair(family, 48, np.random.default_rng(2))
    with np.errstate(invalid="ignore"):
        assert accuracy(method(a, b), a, b).grade == 3


@pytest.mark.parametrize(("family", "grade"), [("graded-20", 2), ("graded-200", 2), ("uniform", 3), ("rows", 3)])
def test_a_fixed_number_of_slices_does_not(family: str, grade: int) -> None:
    a, b = pair(family, 48, np.random.default_rng(2))
    assert accuracy(Adp(slices=7)(a, b), a, b).grade == grade
    assert accuracy(Ozaki1Signed()(a, b), a, b).grade == grade


def test_grades_by_hand() -> None:
    a, b = np.array([[1.0, 2.0**-60], [1.0, 1.0]]), np.eye(2)
    good = a @ b
    assert accuracy(good, a, b).grade == 3
    worse = good.copy()
    worse[0, 1] += 2.0**-54
    # The error is small beside its row and column, and large beside the entry itself.
    assert accuracy(worse, a, b).grade == 2
    assert accuracy(worse, a, b).error_u == pytest.approx(2.0**-54 / (2.0**-53 * 2.0**-60))
    bad = np.full((2, 2), np.nan)
    assert accuracy(bad, a, b).grade == 0
    big = np.array([[1.0, 0.0], [0.0, 2.0**-40]])
    spoiled = big @ np.eye(2)
    spoiled[1, 1] += 2.0**-60
    assert accuracy(spoiled, big, np.eye(2)).grade == 1
    spoiled[1, 1] += 1.0
    assert accuracy(spoiled, big, np.eye(2)).grade == 0


def test_float32_is_not_enough() -> None:
    a, b = pair("uniform", 30, np.random.default_rng(0))
    found = accuracy(Float32()(a, b), a, b)
    assert found.grade == 0
    assert found.error_u > 1e6


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (1, 7, 1), (5, 1, 3), (0, 3, 2), (3, 0, 2), (2, 3, 0), (17, 33, 9)])
def test_shapes(method: Method, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m + 10 * k + 100 * n)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    found = method(a, b)
    assert found.shape == (m, n)
    np.testing.assert_allclose(found, a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_layouts_change_no_bit(method: Method) -> None:
    a, b = pair("uniform", 21, np.random.default_rng(5))
    whole = method(a, b)
    wide = np.zeros((42, 42))
    wide[::2, ::2] = a
    assert np.array_equal(method(wide[::2, ::2], np.asfortranarray(b)), whole) or isinstance(method, Native)


def test_a_long_inner_size_is_cut_in_pieces() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 132_000)), rng.normal(size=(132_000, 2))
    for method in (Adp(), Ozaki2()):
        assert accuracy(method(a, b), a, b).error_u < 1


@pytest.mark.filterwarnings("ignore:invalid value")
def test_special_values_go_the_native_way() -> None:
    for family in ("infinite", "not-a-number"):
        a, b = pair(family, 9, np.random.default_rng(0))
        for method in (Adp(), Ozaki1Signed(), Ozaki2(), DoubleDouble()):
            product, info = method.multiply(a, b)
            assert info.fallback == "infinities or NaNs"
            np.testing.assert_array_equal(np.isfinite(product), np.isfinite(a).all(axis=1)[:, None].repeat(9, axis=1))


def test_dgemm_scales_and_adds() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=(6, 6)) for _ in range(3))
    for method in ("adp", "ozaki2", "native"):
        product, info = dgemm(a, b, method, alpha=-2.0, beta=0.5, c=c, return_info=True)
        np.testing.assert_allclose(product, -2 * (a @ b) + 0.5 * c, rtol=1e-13, atol=1e-13)
        assert info.method == method
    np.testing.assert_allclose(Emulated(max_slices=12)(a, b), a @ b, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(Emulated(method="ozaki2")(a, b), a @ b, rtol=1e-14, atol=1e-14)


def test_auto_takes_what_was_measured_to_be_fastest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.numerics.gemm.products import rates

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rates, "_SIZES", {False: 32, True: 32})
    rates._cache_file.cache_clear()
    rates._known.clear()
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(8, 8)), rng.normal(size=(8, 8))
    dgemm(a, b, "auto")
    (file,) = (tmp_path / "armillary").iterdir()
    stored = json.loads(file.read_text())
    ((name, found),) = stored.items()
    assert set(found) == {"native", "adp7", "ozaki2-15"}
    for fast in found:
        file.write_text(json.dumps({name: {method: 1e12 if method == fast else 1.0 for method in found}}))
        rates._known.clear()
        assert {"native": "native", "adp7": "adp", "ozaki2-15": "ozaki2"}[fast] == dgemm(a, b, "auto", return_info=True)[1].method
    file.write_text("spoiled")
    rates._known.clear()
    dgemm(a, b, "auto")
    rates._known.clear()
    rates._cache_file.cache_clear()


def test_pytorch_products_are_replaced_inside_only() -> None:
    torch = pytest.importorskip("torch")
    a, b = pair("graded-5", 24, np.random.default_rng(0))
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    with emulated_matmul(torch):
        inside = [left @ right, torch.mm(left, right), torch.matmul(left, right)]
        single = left.float() @ right.float()
    for found in inside:
        np.testing.assert_array_equal(found.numpy(), Adp()(a, b))
    np.testing.assert_array_equal((left @ right).numpy(), torch.mm(left, right).numpy())
    assert single.dtype == torch.float32


def test_bad_input_is_refused() -> None:
    a = np.ones((3, 3))
    for call, says in (
        (lambda: dgemm(a, np.ones((2, 3))), "3 columns of a and 2 rows of b"),
        (lambda: dgemm(a.astype(np.float32), a), "float32"),
        (lambda: dgemm(a, np.ones(3)), "1 dimensions"),
        (lambda: dgemm(a, a, "magic"), "unknown method"),
        (lambda: dgemm(a, a, beta=1.0), "beta"),
        (lambda: dgemm(a, a, "native", beta=1.0, c=np.ones((2, 2))), "shape"),
    ):
        with pytest.raises(InputError, match=says):
            call()
    for slices in (1, 21):
        with pytest.raises(InputError, match="max_slices"):
            dgemm(a, a, "adp", max_slices=slices)
