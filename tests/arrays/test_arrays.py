"""One body of tests over every kind of array that is installed, and over a CUDA device where there is one."""

from __future__ import annotations

import importlib
import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from armillary import arrays
from armillary.errors import InputError
from armillary.timing import timed


@dataclass(frozen=True)
class Library:
    """One kind of array on one device: `make` builds from NumPy, keeping the order in memory where it can."""

    name: str
    make: Callable[[np.ndarray], Any]

    def host(self, x: Any) -> np.ndarray:
        """Checks that `x` is still of this kind and on this device, and gives its values."""
        like = self.make(np.zeros(1))
        assert type(x) is type(like)
        assert arrays.device_of(x) == arrays.device_of(like)
        return arrays.to_host(x)


def _libraries() -> list[Any]:
    def torch_from(x: np.ndarray, device: str) -> Any:
        import torch

        source = torch.from_numpy(x)
        return torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device=device).copy_(source)

    def cupy_from(x: np.ndarray) -> Any:
        cupy = importlib.import_module("cupy")
        if x.flags.c_contiguous or x.flags.f_contiguous:
            return cupy.asarray(x, order="F" if x.flags.f_contiguous else "C")
        wide = cupy.zeros(tuple(2 * n for n in x.shape), x.dtype)
        steps = wide[tuple(slice(None, None, 2) for _ in x.shape)]
        steps[...] = cupy.asarray(x)
        return steps

    torch = importlib.util.find_spec("torch")
    cuda = False
    if torch:
        import torch as imported

        cuda = imported.cuda.is_available()
    missing = pytest.mark.skip
    return [
        pytest.param(Library("numpy", lambda x: x), id="numpy"),
        pytest.param(Library("torch", lambda x: torch_from(x, "cpu")), id="torch", marks=() if torch else missing("no PyTorch")),
        pytest.param(Library("torch-cuda", lambda x: torch_from(x, "cuda:0")), id="torch-cuda", marks=() if cuda else missing("no CUDA")),
        pytest.param(Library("cupy", cupy_from), id="cupy", marks=() if importlib.util.find_spec("cupy") else missing("no CuPy")),
    ]


LIBRARIES = _libraries()
every_library = pytest.mark.parametrize("library", LIBRARIES)
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
every_order = pytest.mark.parametrize("layout", ["C", "F", "steps"])
few = settings(max_examples=40, deadline=None)


def random(shape: tuple[int, ...], dtype: str = "float64", layout: str = "C", seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    x = x.astype(dtype)
    if layout == "steps":
        wide = np.full(tuple(2 * n for n in shape), 99, dtype)
        x, values = wide[tuple(slice(None, None, 2) for _ in shape)], x
        x[...] = values
        return x
    return np.asarray(x, order=layout)  # type: ignore[call-overload]


def definite(n: int, dtype: str = "float64", layout: str = "C") -> np.ndarray:
    x = random((n, n), dtype)
    out = random((n, n), dtype, layout)
    out[...] = x @ x.conj().T + n * np.eye(n)
    return out


def close(found: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    assert found.dtype == np.dtype(dtype)
    assert found.shape == expected.shape
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-11
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(1.0, np.abs(expected).max(initial=0)))


# Small cases by hand.


@every_library
def test_a_factor_known_by_hand(library: Library) -> None:
    a = library.make(np.array([[4.0, 2.0], [2.0, 10.0]]))
    assert library.host(arrays.cholesky(a)).tolist() == [[2.0, 0.0], [1.0, 3.0]]
    assert library.host(arrays.cholesky(a, upper=True)).tolist() == [[2.0, 1.0], [0.0, 3.0]]
    perm, lower, u = arrays.lu(library.make(np.array([[1.0, 2.0], [4.0, 4.0], [2.0, 6.0]])))
    assert library.host(perm).tolist() == [1, 2, 0]
    assert library.host(perm).dtype == np.int64
    assert library.host(lower).tolist() == [[1.0, 0.0], [0.5, 1.0], [0.25, 0.25]]
    assert library.host(u).tolist() == [[4.0, 4.0], [0.0, 4.0]]


@every_library
def test_norms_known_by_hand(library: Library) -> None:
    x = library.make(np.array([[3.0, 0.0], [0.0, -4.0]]))
    assert [float(arrays.norm(x, order)) for order in (None, 1, 2, math.inf)] == [5.0, 4.0, 4.0, 4.0]
    vector = library.make(np.array([3.0, -4.0], np.float32))
    assert [float(arrays.norm(vector, order)) for order in (None, 1, 2, math.inf)] == [5.0, 7.0, 5.0, 4.0]
    assert library.host(arrays.norm(vector)).dtype == np.float32
    assert arrays.norm(vector).shape == ()
    assert float(arrays.norm(library.make(np.array([3 + 4j])))) == 5.0
    assert float(arrays.norm(library.make(np.ones((2, 2, 4))))) == 4.0
    assert float(arrays.norm(library.make(np.ones((0, 3), np.complex64)), 1)) == 0.0


@every_library
def test_only_the_named_triangle_is_read(library: Library) -> None:
    a = definite(4)
    dirty = np.where(np.tri(4, dtype=bool), a, np.nan)
    close(library.host(arrays.cholesky(library.make(dirty))), np.linalg.cholesky(a), "float64")
    close(library.host(arrays.cholesky(library.make(dirty.T.copy()), upper=True)), np.linalg.cholesky(a).T, "float64")
    triangle = np.where(np.tri(4, k=-1, dtype=bool), a, np.nan)
    x = library.host(arrays.solve_triangular(library.make(triangle), library.make(a), unit=True))
    close(x, np.linalg.solve(np.tril(a, -1) + np.eye(4), a), "float64")


@every_library
def test_extreme_exponents_are_put_back_exactly(library: Library) -> None:
    x = library.make(np.array([0.0, -0.0, 1.0, -5e-324, 1.7e308, np.inf, -np.inf, np.nan]))
    mantissa, exponent = arrays.frexp(x)
    assert library.host(exponent).tolist() == [0, 0, 1, -1073, 1024, 0, 0, 0]
    assert library.host(exponent).dtype == np.int32
    np.testing.assert_array_equal(library.host(mantissa)[[0, 2, 3, 5, 6, 7]], [0.0, 0.5, -0.5, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(library.host(arrays.ldexp(mantissa, exponent)), library.host(x))
    assert np.signbit(library.host(arrays.ldexp(mantissa, exponent))).tolist() == [0, 1, 0, 1, 0, 0, 1, 0]
    tiny = library.make(np.array([2.0**-1000, 2.0**1000, 3.0]))
    steps = library.make(np.array([2000, -2000, 10**12]))
    assert library.host(arrays.ldexp(tiny, steps)).tolist() == [2.0**1000, 2.0**-1000, np.inf]
    assert library.host(arrays.ldexp(tiny, -(10**12))).tolist() == [0.0, 0.0, 0.0]
    subnormal = library.make(np.array([2.0**-140], np.float32))
    assert library.host(arrays.ldexp(subnormal, 200)).tolist() == [0.0 if library.name == "cupy" else 2.0**60]


@every_library
def test_the_largest_integer_products_are_exact(library: Library) -> None:
    a, b = np.full((2, 131_071), -128, np.int8), np.full((131_071, 3), -128, np.int8)
    product = library.host(arrays.int8_matmul(library.make(a), library.make(b)))
    assert product.dtype == np.int32
    assert product.tolist() == [[131_071 * 2**14] * 3] * 2
    # 2²⁴ + 1, which float32 cannot hold.
    odd = np.array([[-128] * 1024 + [1]], np.int8)
    assert library.host(arrays.int8_matmul(library.make(odd), library.make(odd.T))).tolist() == [[2**24 + 1]]


# Against SciPy and NumPy in every layout.


@every_library
@every_dtype
@every_order
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_is_scipys(library: Library, dtype: str, layout: str, n: int, upper: bool) -> None:
    a = definite(n, dtype, layout)
    kept = a.copy()
    factor = library.host(arrays.cholesky(library.make(a), upper=upper))
    close(factor, scipy.linalg.cholesky(a.astype("complex128" if a.dtype.kind == "c" else "float64"), lower=not upper), dtype)
    assert (a == kept).all()


@every_library
@every_dtype
@every_order
@pytest.mark.parametrize("columns", [None, 0, 1, 3])
def test_triangular_solves_are_dense_solves(library: Library, dtype: str, layout: str, columns: int | None) -> None:
    n = 5
    a = random((n, n), dtype, layout)
    a[...] += 4 * np.eye(n, dtype=dtype)
    other = "F" if layout == "C" else "C"
    for upper in (False, True):
        for trans in ("n", "t", "c"):
            for unit in (False, True):
                triangle = np.triu(a) if upper else np.tril(a)
                if unit:
                    np.fill_diagonal(triangle, 1)
                op = {"n": triangle, "t": triangle.T, "c": triangle.conj().T}[trans].astype("complex128")
                for side in ("left", "right"):
                    shape = (n,) if columns is None else (n, columns) if side == "left" else (columns, n)
                    b = random(shape, dtype, layout if upper else other, seed=2)
                    kept = b.copy()
                    x = library.host(arrays.solve_triangular(library.make(a), library.make(b), upper, trans, unit, side))
                    dense = np.linalg.solve(op, b) if side == "left" else np.linalg.solve(op.T, b.T).T
                    close(x, dense if dtype.startswith("complex") else dense.real, dtype)
                    assert (b == kept).all()


@every_library
@every_dtype
@every_order
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1), (6, 6), (9, 4), (4, 9)])
def test_lu_and_qr_give_the_matrix_back(library: Library, dtype: str, layout: str, shape: tuple[int, int]) -> None:
    a, k = random(shape, dtype, layout), min(shape)
    kept = a.copy()
    perm, lower, u = (library.host(x) for x in arrays.lu(library.make(a)))
    assert sorted(perm.tolist()) == list(range(shape[0]))
    assert (lower.shape, u.shape) == ((shape[0], k), (k, shape[1]))
    close(lower @ u, a[perm], dtype)
    assert (np.triu(lower, 1) == 0).all()
    assert (np.tril(u, -1) == 0).all()
    # Pivots go by the largest |re| + |im|, so that a complex entry of l may be √2 long.
    assert np.abs(lower).max(initial=0) <= (1.42 if dtype.startswith("complex") else 1)
    if k:
        oracle, expected_l, expected_u = scipy.linalg.lu(a, p_indices=True)
        assert (np.argsort(oracle) == perm).all()
        close(lower, expected_l, dtype)
        close(u, expected_u, dtype)
    q, r = (library.host(x) for x in arrays.qr(library.make(a)))
    assert (q.shape, r.shape) == ((shape[0], k), (k, shape[1]))
    close(q @ r, a, dtype)
    close(q.conj().T @ q, np.eye(k, dtype=dtype), dtype)
    assert (np.tril(r, -1) == 0).all()
    assert (a == kept).all()


@every_library
@every_dtype
@every_order
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 4), (4, 1), (1, 1), (33, 20)])
@pytest.mark.parametrize("trans", ["n", "t", "c"])
def test_syrk_is_the_product_and_exactly_symmetric(library: Library, dtype: str, layout: str, shape: tuple[int, int], trans: Any) -> None:
    a = random(shape, dtype, layout)
    product = library.host(arrays.syrk(library.make(a), trans))
    close(product, {"n": a @ a.T, "t": a.T @ a, "c": a.conj().T @ a}[trans], dtype)
    assert (product == (product.conj().T if trans == "c" else product.T)).all()


@every_library
@every_dtype
@every_order
@pytest.mark.parametrize("order", [None, 1, 2, math.inf])
def test_norm_is_numpys(library: Library, dtype: str, layout: str, order: float | None) -> None:
    for shape in ((7,), (5, 4)):
        x = random(shape, dtype, layout)
        found = library.host(arrays.norm(library.make(x), order))
        close(found, np.asarray(np.linalg.norm(x.astype("complex128"), order)), np.abs(x).dtype.name)


# Properties.


@every_library
@few
@given(data=st.data())
def test_integer_products_are_those_of_python(library: Library, data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(0, most)) for most in (20, 1100, 20))
    seed, by_columns = data.draw(st.integers(0, 99)), data.draw(st.booleans())
    a = np.random.default_rng(seed).integers(-128, 128, (m, k)).astype(np.int8, order="F" if by_columns else "C")
    b = np.random.default_rng(seed + 1).integers(-128, 128, (k, 2 * n)).astype(np.int8)[:, ::2]
    product = library.host(arrays.int8_matmul(library.make(a), library.make(b)))
    assert product.dtype == np.int32
    assert (product == a.astype(np.int64) @ b.astype(np.int64)).all()


@every_library
@few
@given(data=st.data(), width=st.sampled_from([32, 64]))
def test_taking_apart_and_putting_together_round_once(library: Library, data: st.DataObject, width: int) -> None:
    x = data.draw(hnp.arrays(f"f{width // 8}", st.integers(0, 6), elements=st.floats(width=width)))  # type: ignore[arg-type]
    mantissa, exponent = (library.host(part) for part in arrays.frexp(library.make(x)))
    finite = np.isfinite(x) & (x != 0)
    assert ((np.abs(mantissa[finite]) >= 0.5) & (np.abs(mantissa[finite]) < 1)).all()
    np.testing.assert_array_equal(np.ldexp(mantissa, exponent), x)
    by = data.draw(st.integers(-2200, 2200))
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(library.host(arrays.ldexp(library.make(x), by)), np.array([_scaled(v, by) for v in x], x.dtype))


def _scaled(value: Any, by: int) -> Any:
    """value · 2^by rounded once: by Fraction, whose division into a float rounds correctly, or an infinity."""
    if not np.isfinite(value) or value == 0:
        return value
    kind, smallest = type(value), -1074 if value.dtype.itemsize == 8 else -149
    # Rounded half to even to what the type resolves there: 53 or 24 bits, fewer in the subnormal range.
    exact = Fraction(float(value)) * Fraction(2) ** by
    bits = 53 if kind is np.float64 else 24
    unit = Fraction(2) ** max(math.frexp(float(value))[1] + by - bits, smallest)
    rounded = round(exact / unit) * unit
    return kind(float(rounded)) if abs(rounded) <= Fraction(float(np.finfo(kind).max)) else kind(math.copysign(math.inf, value))


@every_library
@few
@given(n=st.integers(1, 12), seed=st.integers(0, 999))
def test_a_factor_solves_its_system(library: Library, n: int, seed: int) -> None:
    x = random((n, n), seed=seed)
    a, b = x @ x.T + n * np.eye(n), random((n, 2), seed=seed + 1)
    factor = arrays.cholesky(library.make(a))
    solved = arrays.solve_triangular(factor, arrays.solve_triangular(factor, library.make(b)), trans="t")
    close(library.host(solved), np.linalg.solve(a, b), "float64")


@every_library
@few
@given(rows=st.integers(1, 9), columns=st.integers(1, 9), seed=st.integers(0, 99))
def test_singular_matrices_have_lu_factors(library: Library, rows: int, columns: int, seed: int) -> None:
    if library.name in ("cupy", "torch-cuda"):
        pytest.skip("cuSOLVER does not factor singular matrices")
    a = np.random.default_rng(seed).integers(-1, 2, (rows, 1)) @ np.random.default_rng(seed + 1).integers(-1, 2, (1, columns))
    a = a.astype("float64")
    perm, lower, u = (library.host(x) for x in arrays.lu(library.make(a)))
    assert (lower @ u == a[perm]).all()


# Where things lie, and what is copied.


def _placed(x: np.ndarray, begin: int) -> np.ndarray:
    """A copy of `x`, in its order, that begins `begin` bytes after a multiple of 64."""
    if not x.flags.c_contiguous:
        return _placed(x.T, begin).T
    room = np.empty(x.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + begin
    copy = room[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_aligned_arrays_begin_at_a_multiple_of_64_and_give_equal_products(dtype: str, layout: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = random((30, 88), dtype, layout), random((88, 64), dtype, layout, seed=2)
    first: dict[str, Any] = {}
    for begin in range(64):
        placed = [_placed(x, begin) for x in (a, b)]
        assert {x.ctypes.data % 64 for x in placed} == {begin}
        for name, source in (("numpy", placed), ("torch", [torch.from_numpy(x) for x in placed])):
            x, y = (arrays.aligned(each) for each in source)
            assert all((each.ctypes.data if name == "numpy" else each.data_ptr()) % 64 == 0 for each in (x, y))
            assert (x is source[0]) == (begin == 0)
            assert x.shape == a.shape
            assert x.dtype == source[0].dtype
            product = arrays.to_host(x @ y)
            np.testing.assert_array_equal(product, first.setdefault(name, product))
    np.testing.assert_allclose(first["numpy"], a @ b, rtol=1e-4, atol=1e-4)


@every_library
def test_alignment_keeps_values_and_steps_of_any_array(library: Library) -> None:
    for layout in ("C", "F", "steps"):
        for shape in ((0, 3), (5,), (3, 4, 2)):
            x = random(shape, "float64", layout)
            np.testing.assert_array_equal(library.host(arrays.aligned(library.make(x))), x)


@every_library
def test_host_copies_are_counted_and_nothing_else_is(library: Library) -> None:
    x, before = library.make(definite(3)), arrays.copied_bytes()
    away = library.name in ("torch-cuda", "cupy")
    for work in (arrays.qr, arrays.norm, arrays.syrk, arrays.frexp, lambda a: arrays.solve_triangular(a, a)):
        work(x)
    assert arrays.copied_bytes() == before
    arrays.cholesky(x)
    assert arrays.copied_bytes() - before == (8 if away else 0)
    arrays.lu(x)
    assert arrays.copied_bytes() - before == (20 if away else 0)
    np.testing.assert_array_equal(arrays.to_host(x), definite(3))
    assert arrays.copied_bytes() - before == (20 + 72 if away else 0)


@every_library
def test_the_clock_waits_on_both_sides(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    x, seen = library.make(np.ones(3)), []
    monkeypatch.setattr("armillary.arrays.clock.synchronise", lambda *on: seen.append("wait"))
    assert timed(lambda: seen.append("work"), x, min_seconds=0, min_calls=3).calls == 3
    assert seen == ["wait", "work", "wait"] * 3
    monkeypatch.undo()
    arrays.synchronise(x, x)
    assert (arrays.stream(x) is None) == (library.name in ("numpy", "torch"))


@every_library
def test_namespace_speaks_the_array_api(library: Library) -> None:
    x = library.make(np.arange(3.0))
    assert library.host(arrays.namespace(x, x).concat([x, x])).tolist() == [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]


def test_torch_tensors_on_the_host_are_viewed_with_their_conjugation() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1 + 2j], requires_grad=True)
    assert arrays.to_host(x.conj()).tolist() == [1 - 2j]
    y = torch.zeros(2)
    arrays.to_host(y)[0] = 7
    assert y.tolist() == [7.0, 0.0]
    with pytest.raises(InputError, match="bfloat16"):
        arrays.to_host(y.to(torch.bfloat16))


def test_padding_for_int8_units_keeps_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from armillary.arrays.exact import _padded_int_mm

    real = torch._int_mm

    def as_on_cuda(a: Any, b: Any) -> Any:
        assert a.shape[0] > 16
        assert (a.shape[1] % 8, b.shape[1] % 8) == (0, 0)
        return real(a, b)

    monkeypatch.setattr(torch, "_int_mm", as_on_cuda)
    for m, k, n in [(1, 1, 1), (17, 16, 16), (16, 15, 17), (33, 8, 40)]:
        a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((m, k), (k, n)))
        assert torch.equal(_padded_int_mm(a, b), a.int() @ b.int())


def test_float_blocks_serve_torch_without_int8_units(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    monkeypatch.setattr(torch, "_int_mm", None)
    a, b = (torch.full(shape, -128, dtype=torch.int8) for shape in ((2, 3000), (3000, 2)))
    a[0, 2999] = 1
    assert arrays.int8_matmul(a, b).tolist() == [[2999 * 2**14 - 128] * 2, [3000 * 2**14] * 2]


def test_importing_brings_no_library_along() -> None:
    code = (
        "import sys; import armillary.arrays as a; a.int8_matmul, a.lu, a.stream; assert not {'torch', 'cupy', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Bad input.


@every_library
def test_what_is_not_positive_definite_is_named_with_its_minor(library: Library) -> None:
    for minor in (1, 2, 4):
        bad = np.eye(4)
        bad[minor - 1, minor - 1] = -1
        for upper in (False, True):
            with pytest.raises(InputError, match=rf"cholesky: a: not positive definite: the leading minor of order {minor} "):
                arrays.cholesky(library.make(bad), upper=upper)
    unknown = np.eye(3)
    unknown[2, 1] = np.nan
    with pytest.raises(InputError, match="leading minor of order 3 is not positive and finite"):
        arrays.cholesky(library.make(unknown))


@every_library
def test_wrong_shapes_dtypes_and_choices_are_refused(library: Library) -> None:
    m = library.make
    eye, wide, vector, integers = m(np.eye(2)), m(np.ones((2, 3))), m(np.ones(2)), m(np.ones((2, 2), np.int64))
    bytes_ = m(np.ones((2, 2), np.int8))
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: arrays.cholesky(wide), r"cholesky: a: found shape \(2, 3\); expected a square matrix"),
        (lambda: arrays.cholesky(vector), "cholesky: a: found 1 dimensions; expected 2"),
        (lambda: arrays.cholesky(integers), "found dtype int64; expected float32 or float64 or complex64 or complex128"),
        (lambda: arrays.qr(integers), "found dtype int64"),
        (lambda: arrays.lu(vector), "found 1 dimensions"),
        (lambda: arrays.solve_triangular(wide, eye), "square"),
        (lambda: arrays.solve_triangular(vector, vector), "solve_triangular: a: found 1 dimensions; expected 2"),
        (lambda: arrays.solve_triangular(eye, m(np.ones((3, 2)))), r"b: found shape \(3, 2\); expected rows: 2"),
        (lambda: arrays.solve_triangular(eye, m(np.ones(3))), "expected rows: 2"),
        (lambda: arrays.solve_triangular(eye, m(np.ones((2, 3))), side="right"), "expected columns: 2"),
        (lambda: arrays.solve_triangular(eye, m(np.eye(2, dtype=np.float32))), "found float32 and float64 together"),
        (lambda: arrays.solve_triangular(eye, eye, trans="x"), "trans: unknown choice"),  # type: ignore[arg-type]
        (lambda: arrays.solve_triangular(eye, eye, side="up"), "side: unknown choice"),  # type: ignore[arg-type]
        (lambda: arrays.norm(eye, 3), "norm: order: found 3"),
        (lambda: arrays.norm(m(np.ones((2, 2, 2))), 1), "found 3 dimensions; expected 1 or 2"),
        (lambda: arrays.syrk(eye, "h"), "syrk: trans: unknown choice"),  # type: ignore[arg-type]
        (lambda: arrays.frexp(integers), "frexp: x: found dtype int64"),
        (lambda: arrays.ldexp(eye, eye), "ldexp: exponent: found dtype float64"),
        (lambda: arrays.ldexp(eye, 1.5), "found float; expected a NumPy, CuPy or PyTorch array"),
        (lambda: arrays.ldexp(m(np.ones(3)), m(np.ones(2, np.int64))), r"ldexp: found shapes \(3,\) and \(2,\)"),
        (lambda: arrays.int8_matmul(integers, bytes_), "int8_matmul: a: found dtype int64; expected int8"),
        (lambda: arrays.int8_matmul(bytes_, m(np.ones((3, 2), np.int8))), "found 2 columns of a and 3 rows of b"),
        (lambda: arrays.int8_matmul(m(np.ones((1, 131_072), np.int8)), m(np.ones((131_072, 1), np.int8))), "at most 131071"),
    ]
    for work, message in cases:
        with pytest.raises(InputError, match=message):
            work()


def test_mixed_and_foreign_arrays_are_refused() -> None:
    for foreign in ([1.0], 1.0, None, np.float64(1), np.ma.masked_array([1.0]), "x"):
        with pytest.raises(InputError, match="expected a NumPy, CuPy or PyTorch array"):
            arrays.namespace(foreign)
    with pytest.raises(InputError, match="no array"):
        arrays.namespace()
    torch = pytest.importorskip("torch")
    for work in (arrays.solve_triangular, arrays.int8_matmul, arrays.ldexp, arrays.device_of, arrays.namespace):
        with pytest.raises(InputError, match="numpy and torch arrays together"):
            work(np.eye(2), torch.eye(2))
    with pytest.raises(InputError, match="found arrays on cpu and meta; expected one device"):
        arrays.solve_triangular(torch.eye(2), torch.eye(2, device="meta"))
