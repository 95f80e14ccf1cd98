"""Digits, spans and their products agree with exact numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.numerics.gemm import Adp, Ozaki1Signed, Ozaki2, esc
from armillary.numerics.gemm.adp import error_bound
from armillary.numerics.gemm.digits.digit_products import multiply, products
from armillary.numerics.gemm.digits.exponents import NOTHING, exponents
from armillary.numerics.gemm.digits.slices import cut, slices_for
from armillary.numerics.gemm.ozaki2 import MODULI, integer_product, weights

U = Fraction(1, 2**53)


def exactly(a: np.ndarray, b: np.ndarray) -> list[list[Fraction]]:
    rows = [[Fraction(float(x)) for x in row] for row in a]
    columns = [[Fraction(float(x)) for x in column] for column in b.T]
    return [[sum((x * y for x, y in zip(row, column)), Fraction(0)) for column in columns] for row in rows]


def error_u(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    truth, size = exactly(a, b), exactly(abs(a), abs(b))
    worst = Fraction(0)
    for i, row in enumerate(truth):
        for j, value in enumerate(row):
            error = abs(Fraction(float(c[i, j])) - value)
            worst = max(worst, error / (U * size[i][j]) if size[i][j] else Fraction(int(error > 0) * 10**9))
    return float(worst)


def uniform(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, n)), rng.uniform(-1, 1, (n, n))


def graded(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    a, b = uniform(n, seed)
    grades = 2.0 ** np.random.default_rng(seed + 1).integers(-d, d + 1, n)
    return a * grades, b / grades[:, None]


def exact_span(a: np.ndarray, b: np.ndarray) -> int:
    ea, eb = exponents(a).astype(np.int64), exponents(b).astype(np.int64)
    widest = 0
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            inner = max(ea[i, k] + eb[k, j] for k in range(a.shape[1]))
            if inner > NOTHING // 2:
                widest = max(widest, int(ea[i].max() + eb[:, j].max() - inner + 1))
    return widest


# Exponents and spans


def test_exponents_by_hand() -> None:
    found = exponents(np.array([1.0, 1.99, 2.0, 0.5, -3.0, 0.0, -0.0, 5e-324, 1.7e308]))
    assert found.tolist() == [0, 0, 1, -1, 1, NOTHING, NOTHING, -1074, 1023]


def test_span_by_hand() -> None:
    a, b = np.array([[1, 2.0**-30]]), np.array([[2.0**-30], [1]])
    assert esc(a, b, block=1) == 31
    assert slices_for(31) == 11
    assert Adp().multiply(a, b)[1].fallback.startswith("11 slices")
    product, info = Adp(max_slices=12).multiply(a, b)
    assert product.tolist() == [[2.0**-29]]
    assert (info.span, info.slices, info.gemms, info.fallback) == (31, 11, 66, "")


numbers = st.one_of(st.just(0.0), st.just(-0.0), st.floats(-1e30, 1e30, allow_nan=False), st.floats(-1, 1))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_coarse_span_is_never_below_the_exact_one(data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(1, 5)) for _ in range(3))
    a = np.array(data.draw(st.lists(numbers, min_size=m * k, max_size=m * k))).reshape(m, k)
    b = np.array(data.draw(st.lists(numbers, min_size=k * n, max_size=k * n))).reshape(k, n)
    exact = exact_span(a, b)
    assert esc(a, b, block=1) == exact
    for block in (2, 3, 64):
        assert esc(a, b, block=block) >= exact


def test_zeros_in_every_block_do_not_hide_a_product() -> None:
    a, b = np.zeros((2, 128)), np.zeros((128, 2))
    a[0, 5], b[5, 1] = 2.0**-7, 4.0
    a[1, 9] = 3.0
    assert esc(a, b, block=64) == 1
    assert esc(np.zeros((3, 4)), np.zeros((4, 3))) == 0
    assert esc(np.zeros((3, 0)), np.zeros((0, 3))) == 0


# Digits


@settings(max_examples=200, deadline=None)
@given(s=st.integers(2, 20), data=st.data(), signed=st.booleans())
def test_digits_hold_what_they_promise(s: int, data: st.DataObject, signed: bool) -> None:
    row = data.draw(st.lists(numbers, min_size=1, max_size=6))
    found = cut(np.array([row]), s, signed=signed)
    base = 2**found.bits
    unit = Fraction(2) ** int(found.scale[0])
    for k, value in enumerate(row):
        whole = sum(int(found.planes[p, 0, k]) * base ** (s - 1 - p) for p in range(s))
        rest = Fraction(value) - whole * unit
        assert abs(rest) < unit
        assert signed or rest >= 0
        if not signed:
            assert abs(whole) < 2 ** (8 * s - 1)


@pytest.mark.parametrize("s", [2, 3, 7])
def test_every_border_of_the_digits_round_trips(s: int) -> None:
    borders = {sign * (2**e + d) for e in range(8 * s - 1) for d in (-1, 0, 1) for sign in (-1, 1)}
    borders |= {sign * 127 * sum(256**p for p in range(q)) for q in range(1, s) for sign in (-1, 1)}
    # The last one sets the scale of the row: whole numbers then are what the digits hold, at unit 1.
    for value in sorted(b for b in borders if abs(b) < 2**53):
        top = 2.0 ** (8 * s - 2)
        found = cut(np.array([[float(value), top]]), s)
        assert int(found.scale[0]) == 0
        assert sum(int(found.planes[p, 0, 0]) * 256 ** (s - 1 - p) for p in range(s)) == value


def test_integers_are_bitwise_exact() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-(2**26) + 1, 2**26, shape).astype(float) for shape in ((5, 2), (2, 6)))
    truth = np.array([[int(v) for v in row] for row in exactly(a, b)], dtype=float)
    for method in (Adp(), Ozaki1Signed(), Ozaki2(), Ozaki2(scaling="fast")):
        assert (method(a, b) == truth).all(), method


@pytest.mark.parametrize("most_inner", [1, 2, 100, 131_071])
def test_pieces_of_the_inner_index_change_no_bit(most_inner: int) -> None:
    a, b = uniform(20)
    whole = multiply(cut(a, 7), cut(b.T, 7))
    assert (multiply(cut(a, 7), cut(b.T, 7), most_inner=most_inner * 7) == whole).all()


def test_int32_sums_do_not_overflow_at_the_limit() -> None:
    # All digits but the highest are −128 for this number, the largest products that there are.
    inner = 131_071 // 3
    value = float(-128 * (1 + 256) - 126 * 65536)
    a = np.full((1, inner), value)
    planes = cut(a, 3).planes
    assert planes[:, 0, 0].tolist() == [-126, -128, -128]
    left = sum(2 ** (8 * (4 - p - q)) * int(planes[p, 0, 0]) * int(planes[q, 0, 0]) for p in range(3) for q in range(3) if p + q <= 2)
    assert multiply(cut(a, 3), cut(a, 3))[0, 0] == float(left * inner)


# Products


@pytest.mark.parametrize("seed", range(5))
def test_uniform_matrices_need_seven_slices(seed: int) -> None:
    # A row that comes near a power of two has a bit less in int8 digits: its error is below native's, but can exceed 1.
    a, b = (0.99 * x for x in uniform(24, seed))
    product, info = Adp().multiply(a, b)
    assert info.span is not None
    assert info.span <= 3
    assert (info.slices, info.gemms, info.fallback) == (7, 28, "")
    assert products(7) == 28
    assert products(8) == 36
    assert error_u(product, a, b) <= 1.0


@pytest.mark.parametrize(("d", "slices", "too_few"), [(5, 9, 1e2), (10, 10, 1e4), (20, 12, 1e8), (40, 17, 1e14)])
def test_graded_matrices_need_more(d: int, slices: int, too_few: float) -> None:
    a, b = graded(24, d)
    product, info = Adp(max_slices=20).multiply(a, b)
    assert abs(info.slices - slices) <= 1
    assert error_u(product, a, b) <= 1.0
    assert error_u(Adp(slices=7)(a, b), a, b) > too_few


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), d=st.integers(0, 20))
def test_the_error_is_within_its_proven_bound(seed: int, n: int, d: int) -> None:
    a, b = graded(n, d, seed)
    for method in (Adp(max_slices=20), Ozaki2()):
        product, info = method.multiply(a, b)
        assert error_u(product, a, b) <= info.bound


def test_fewer_slices_have_a_larger_bound() -> None:
    assert error_bound(10, 8, 2) < error_bound(10, 7, 2) / 100
    assert error_bound(10, 7, 3) > error_bound(10, 7, 2)


@pytest.mark.parametrize("scaling", ["fast", "accurate"])
@pytest.mark.parametrize("d", [0, 5])
def test_remainders_are_as_accurate(scaling: str, d: int) -> None:
    a, b = graded(24, d)
    product, info = Ozaki2(scaling=scaling).multiply(a, b)  # type: ignore[arg-type]
    assert not info.fallback
    assert error_u(product, a, b) <= 1.0


def test_remainders_notice_when_moduli_do_not_suffice() -> None:
    a = np.full((2, 3), 2.0**25)
    b = np.full((3, 2), -(2.0**25))
    need = next(n for n in range(1, 21) if weights(n).product > 2 * 3 * 2**50 * 1.1)
    assert (integer_product(a, b, need) == -3.0 * 2**50).all()
    with pytest.raises(InputError, match="expected more moduli"):
        integer_product(a, b, need - 1)
    with pytest.raises(InputError, match="whole"):
        integer_product(a + 0.5, b, need)


def test_moduli_are_coprime_and_weights_are_the_theorems() -> None:
    for count in (2, 15, 20):
        constants = weights(count)
        for t in range(count):
            whole = int(constants.high[t]) + int(constants.low[t])
            # The low part is rounded to float64 when it is long; its error is far below the unit of the answer.
            exact = constants.product // MODULI[t] * pow(constants.product // MODULI[t], -1, MODULI[t])
            assert abs(whole - exact) <= 2 ** max(0, constants.product.bit_length() - 40 - 53)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 5), k=st.integers(1, 9), n=st.integers(1, 5))
def test_remainders_of_integers_are_exact(seed: int, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-(2**20), 2**20, (m, k)).astype(float), rng.integers(-(2**20), 2**20, (k, n)).astype(float)
    assert (integer_product(a, b, 8) == a @ b).all()
