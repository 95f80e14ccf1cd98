"""Gradients by hand, against closed forms and against complex steps."""

# ruff: noqa: B007, F841
from __future__ import annotations

import numpy as np
import pytest
from interpreted import all_parts_off, complex_step, plain

from armillary.training.autodiff import dace_ad
from armillary.training.autodiff.kernels.catalogue import KERNELS
from armillary.training.autodiff.running import reference
from armillary.training.autodiff.workload import built_in

STRATEGIES = ("ilp", "store", "recompute")


def squares(x):
    y = x
    for i in range(3):
        y = y * y
    return y


def smooth(A):
    for t in range(5):
        A[1:-1] = (A[:-2] + A[2:]) / 2


def power(x):
    for i in range(10):
        x *= x


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_scalar_that_is_overwritten(strategy: str) -> None:
    made = plain(squares, "x", strategy=strategy)
    assert made(1.1) == pytest.approx(8 * 1.1**7, rel=1e-14)
    assert made.value_and_grad(1.1)[0] == pytest.approx(1.1**8)


def test_linear_updates_need_no_tape() -> None:
    made = plain(smooth, output="A")
    x = np.random.default_rng(0).random(9)
    (gradient,) = made(x)
    assert made.peak_bytes == 0
    step = np.eye(9)
    step[1:-1] = (np.eye(9)[:-2] + np.eye(9)[2:]) / 2
    assert gradient == pytest.approx(np.linalg.matrix_power(step.T, 5) @ np.ones(9), rel=1e-14)
    assert x == pytest.approx(np.random.default_rng(0).random(9)), "the caller's array is not changed"


def test_a_loop_of_ten_stores_ten_values_or_one() -> None:
    x = np.array([1.01])
    stored, replayed = plain(power, output="x", strategy="store"), plain(power, output="x", strategy="recompute")
    truth = 1024 * x**1023
    assert stored(x)[0] == pytest.approx(truth, rel=1e-11)
    assert replayed(x)[0] == pytest.approx(truth, rel=1e-11)
    assert stored.peak_bytes == 80
    assert replayed.peak_bytes == 16, "one snapshot and one value on the tape"


def every_second(A):
    B = A[::2]
    B += 1.0
    B *= B
    return A


def aliases(A, b):
    first = A[0]
    first[:] = first * b
    A[1] = A[0] * A[1]
    return A


@pytest.mark.parametrize(("function", "wrt"), [(every_second, ("A",)), (aliases, ("A", "b"))])
def test_views_are_the_array_itself(function, wrt) -> None:
    rng = np.random.default_rng(1)
    arguments = {"A": rng.random(7)} if function is every_second else {"A": rng.random((2, 5)), "b": rng.random(5)}
    for name, gradient in zip(wrt, plain(function, wrt)(**arguments)):
        assert gradient == pytest.approx(complex_step(lambda **a: function(**a), arguments, name), rel=1e-13)


def branches(x, y):
    for i in range(1, x.shape[0]):
        if x[i] > 0.5:
            y[i] = x[i] * y[i - 1]
        else:
            y[i] = x[i - 1] * x[i] * x[i] - y[i - 1]
        x[i] = x[i] * 0.5
    return y


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_branches_on_active_data_are_remembered(strategy: str) -> None:
    rng = np.random.default_rng(2)
    arguments = {"x": rng.random(12), "y": rng.random(12)}
    made = plain(branches, ("x", "y"), strategy=strategy)
    for name, gradient in zip(("x", "y"), made(**arguments)):
        assert gradient == pytest.approx(complex_step(branches, arguments, name), rel=1e-12)


def newton(a, x):
    error = 1.0
    while error > 1e-10:
        before = x
        x = 0.5 * (x + a / x)
        error = (x - before) ** 2
    return x


def test_a_while_loop_counts_its_passes() -> None:
    made = plain(newton, ("a", "x"))
    by_a, by_x = made(7.0, 1.0)
    assert by_a == pytest.approx(0.5 / np.sqrt(7.0), rel=1e-6)
    assert abs(by_x) < 1e-4
    assert made.peak_bytes > 0


def unused(x, z):
    a = np.sin(x)
    b = np.exp(z) * 3.0
    c = b * a + np.sum(z)
    d = np.cos(a)
    return a * x


def test_unused_code_is_not_differentiated() -> None:
    made = plain(unused, "x")
    prepared = made.prepare(made.bind((np.ones(3), np.ones(3)), {}))
    assert prepared.reversed.statements == 2, "the sine and the product"
    assert "d_z" not in prepared.text
    everything = plain(unused, "x", choices=all_parts_off()[4])
    assert everything.prepare(everything.bind((np.ones(3), np.ones(3)), {})).reversed.statements > 2
    assert everything(np.ones(3), np.ones(3)) == pytest.approx(made(np.ones(3), np.ones(3)))


def gather(x, index):
    return x[index] * x[index]


def test_repeated_indices_accumulate() -> None:
    x, index = np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2, 2])
    assert plain(gather, "x")(x, index).tolist() == [2.0, 0.0, 18.0]


@pytest.mark.parametrize(("name", "closed"), [("cholesky", "_cholesky"), ("lu", "_lu")])
def test_factorisations_have_their_closed_forms(name: str, closed: str) -> None:
    problem = built_in(name, "tiny", np.random.default_rng(3))
    made = plain(problem.source, "A", output="A")
    A = problem.arguments["A"]
    assert made(A) == pytest.approx(globals()[closed](A), rel=1e-9, abs=1e-9)


def _cholesky(A):
    """The adjoint of Cholesky's factor for the sum of the lower triangle, plus the untouched upper triangle."""
    L = np.linalg.cholesky(A)
    bar = np.tril(np.ones_like(A))
    phi = np.tril(L.T @ bar)
    np.fill_diagonal(phi, np.diag(phi) / 2)
    inverse = np.linalg.inv(L)
    full = inverse.T @ phi @ inverse
    symmetric = (full + full.T) / 2
    return np.tril(2 * symmetric, -1) + np.diag(np.diag(symmetric)) + np.triu(np.ones_like(A), 1)


def _lu(A):
    """The adjoint of LU without pivots for the sum of both factors, the unit diagonal of L left out."""
    n = len(A)
    made = A.copy()
    for i in range(n):
        for j in range(i):
            made[i, j] = (made[i, j] - made[i, :j] @ made[:j, j]) / made[j, j]
        for j in range(i, n):
            made[i, j] -= made[i, :i] @ made[:i, j]
    L, U = np.tril(made, -1) + np.eye(n), np.triu(made)
    bar_l, bar_u = np.tril(np.ones((n, n)), -1), np.triu(np.ones((n, n)))
    inner = np.tril(L.T @ bar_l, -1) + np.triu(bar_u @ U.T)
    return np.linalg.inv(L).T @ inner @ np.linalg.inv(U).T


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_have_the_gradient_of_a_complex_step(name: str) -> None:
    _check_kernel(name, ("store", "recompute"))


def _check_kernel(name: str, strategies: tuple[str, ...]) -> None:
    problem = built_in(name, "tiny", np.random.default_rng(4))
    found = reference.probes(problem, np.random.default_rng(5))
    single = any(problem.arguments[one].dtype == np.float32 for one in problem.active)
    tolerance = 1e-4 if single else 1e-10 if KERNELS[name].analytic else 1e-6
    for strategy in strategies:
        made = plain(problem.source, problem.active, strategy=strategy, output=problem.output)
        value, gradients = made.value_and_grad(**problem.fresh())
        assert reference.error(dict(zip(problem.active, gradients)), found) < tolerance, strategy
        assert made.peak_bytes == made.plan_of(problem.arguments).bytes, "what is promised is what is allocated"
        run = reference.run(problem, problem.arguments)
        assert value == pytest.approx(float(np.sum(run, dtype=float)), rel=1e-4 if single else 1e-9)
        assert made.forward(**problem.fresh()) == pytest.approx(run, rel=1e-4 if single else 1e-9, abs=1e-6 if single else 1e-12)


@pytest.mark.parametrize("name", ["durbin", "gramschmidt", "lu", "vadv"])
def test_every_part_can_be_switched_off_and_the_gradient_stays(name: str) -> None:
    problem = built_in(name, "tiny", np.random.default_rng(6))
    truth, sizes = None, {}
    for choices in all_parts_off():
        made = plain(problem.source, problem.active, output=problem.output, choices=choices, strategy="store")
        gradients = made(**problem.fresh())
        truth = truth or gradients
        for mine, theirs in zip(gradients, truth):
            assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12), choices
        sizes[choices] = made.peak_bytes
    everything, nothing = all_parts_off()[0], all_parts_off()[2]
    assert sizes[everything] < sizes[nothing] or name == "durbin", "reading in place saves memory"


def test_compiled_and_interpreted_gradients_are_equal() -> None:
    problem = built_in("durbin", "tiny", np.random.default_rng(7))
    compiled = dace_ad.grad(KERNELS["durbin"].function, "r")
    assert compiled(**problem.arguments) == pytest.approx(plain(problem.source, "r")(**problem.arguments), rel=1e-13)
    assert "line" in compiled.report(**problem.arguments)


def rules(x, y):
    a = np.exp(x) * np.sin(y) + np.cos(x) / (2.0 + y) - np.tan(0.3 * x) + np.log(2.0 + y)
    b = np.tanh(a) + np.sinh(0.2 * x) * np.cosh(0.1 * y) + np.arctan2(x, 2.0 + y)
    c = np.where(x > y, b * x, b - y) + np.maximum(x, 0.5 * y) + np.minimum(a, b) + np.abs(x - 0.4)
    d = c**2 + c**3.0 + (2.0 + x) ** y + np.sqrt(1.0 + x) + x**-2
    return d + np.mean(a) + np.prod(1.0 + 0.1 * x) + np.std(y)


def test_every_rule_of_differentiation() -> None:
    rng = np.random.default_rng(8)
    arguments = {"x": 0.2 + rng.random(5), "y": 0.3 + rng.random(5)}
    made = plain(rules, ("x", "y"))
    step = 1e-6
    for name, gradient in zip(("x", "y"), made(**arguments)):
        for k in range(5):
            moved = [{**arguments, name: arguments[name] + sign * step * (np.arange(5) == k)} for sign in (1, -1)]
            central = (rules(**moved[0]).sum() - rules(**moved[1]).sum()) / (2 * step)
            assert gradient[k] == pytest.approx(central, rel=1e-7, abs=1e-7)


def shapes(A, v):
    left = np.reshape(A, (2, 6)) @ np.transpose(np.reshape(A, (2, 6)))
    stacked = np.hstack((left, np.outer(v, v)[:2, :2]))
    flipped = np.flip(np.triu(stacked[:, :2], 0)) + np.eye(2) * v[0]
    tall = np.vstack((flipped, A[:2, :2].T))
    return np.max(tall, axis=0) + np.min(tall, axis=1)[:2] + tall[-1, ::-1] + np.concatenate((v[:1], v[-1:]))


def test_shapes_are_followed() -> None:
    rng = np.random.default_rng(9)
    arguments = {"A": rng.random((3, 4)), "v": rng.random(3)}
    made = plain(shapes, ("A", "v"))
    assert made.forward(**arguments) == pytest.approx(shapes(**arguments))
    for name, gradient in zip(("A", "v"), made(**arguments)):
        assert gradient == pytest.approx(complex_step(shapes, arguments, name), rel=1e-12)


def test_first_of_equal_maxima_gets_the_gradient() -> None:
    def greatest(x):
        return np.max(x)

    assert plain(greatest, "x")(np.array([1.0, 3.0, 3.0])).tolist() == [0.0, 1.0, 0.0]


def test_a_square_root_at_zero_that_nothing_uses_is_harmless() -> None:
    def distances(x):
        r = np.sqrt(x * x)
        return np.where(x > 0, r, 0.0)

    assert plain(distances, "x")(np.array([0.0, 2.0])).tolist() == [0.0, 1.0]


def test_a_vjp_takes_any_cotangent() -> None:
    x = np.array([1.0, 2.0, 3.0])
    result, pull = plain(gather, "x").vjp(x, np.array([0, 2]))
    assert result.tolist() == [1.0, 9.0]
    assert pull(np.array([10.0, 1.0])).tolist() == [20.0, 0.0, 6.0]


def test_single_precision_stays_single() -> None:
    def product(a, b):
        return a @ b

    rng = np.random.default_rng(10)
    a, b = rng.random((9, 8), np.float32), rng.random((8, 7), np.float32)
    by_a, by_b = plain(product)(a, b)
    assert by_a.dtype == by_b.dtype == np.float32
    assert by_a == pytest.approx(np.tile(b.sum(axis=1), (9, 1)), rel=1e-5)
