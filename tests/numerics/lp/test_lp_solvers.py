"""Solvers find known optima and those of HiGHS, and prove where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from armillary import comm
from armillary.errors import InputError
from armillary.numerics.lp import HighsIpm, HighsSimplex, LinearProgram, Pdhg, PdlpAverage, R2Hpdhg, RramPdhg, advise, from_linprog, solve
from armillary.numerics.lp.first_order.scaled import norm2, scaled
from armillary.numerics.lp.first_order.sums import dot, top_of_tridiagonal
from armillary.numerics.lp.program import kkt
from armillary.numerics.lp.workload import FAMILIES, family, planted

INF = np.inf
DIGITAL: list[Any] = [R2Hpdhg(), PdlpAverage(), Pdhg(tolerance=1e-6), HighsSimplex(), HighsIpm()]
FIRST_ORDER: list[Any] = DIGITAL[:3]
IDEAL = RramPdhg(ideal=True, converter_bits=0, correct=0, tolerance=1e-6)


def small() -> LinearProgram:
    """Returns min x₁ + x₂ over x₁ + 2x₂ = 5, x₂ ≤ 2, 3x₁ + 2x₂ ≤ 8, whose optimum is 3 at (1, 2)."""
    rows = csr_array(np.array([[1.0, 2.0], [3.0, 2.0]]))
    return LinearProgram(np.ones(2), rows, np.array([5.0, -INF]), np.array([5.0, 8.0]), np.zeros(2), np.array([INF, 2.0]))


@pytest.mark.parametrize("method", [*DIGITAL, IDEAL], ids=lambda m: type(m).__name__)
def test_the_small_program(method: Any) -> None:
    found = method.solve(small())
    assert found.status == "optimal"
    np.testing.assert_allclose(found.x, [1, 2], atol=1e-4)
    assert found.objective == pytest.approx(3, abs=1e-4)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 40))
def test_planted_optima_are_found(seed: int, n: int) -> None:
    lp, x, y = planted(n, np.random.default_rng(seed))
    best = float(lp.cost @ x)
    assert kkt.errors(lp, x, y).worst < 1e-12
    found = R2Hpdhg(tolerance=1e-8).solve(lp)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    # The residuals are computed in another way than the solver's own.
    activity = lp.matrix.toarray() @ found.x
    assert (activity >= lp.row_lower - 1e-5).all()
    assert (activity <= lp.row_upper + 1e-5).all()
    assert (found.y[np.isinf(lp.row_upper)] >= -1e-9).all()
    assert (found.y[np.isinf(lp.row_lower)] <= 1e-9).all()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("method", FIRST_ORDER, ids=lambda m: type(m).__name__)
def test_every_family_has_the_optimum_of_highs(name: str, method: Any) -> None:
    lp = family(name, 60, np.random.default_rng(3))
    best = HighsSimplex().solve(lp)
    assert best.status == "optimal"
    found = method.solve(lp)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(best.objective, rel=2e-5, abs=2e-5)
    assert max(found.primal_residual, found.dual_residual, found.gap) <= 1e-6
    assert found.history[-1, 0] == found.iterations


def test_prices_of_highs_are_ours() -> None:
    lp = family("regression", 40, np.random.default_rng(0))
    for method in (HighsSimplex(), HighsIpm()):
        found = method.solve(lp)
        assert max(found.primal_residual, found.dual_residual, found.gap) < 1e-8


# In memory


def test_without_noise_memory_does_what_the_exact_loop_does() -> None:
    lp = family("staircase", 60, np.random.default_rng(0))
    exact, memory = Pdhg(tolerance=1e-9, most=500), replace(IDEAL, tolerance=1e-9, most=500)
    a, b = exact.solve(lp), memory.solve(lp)
    # The two find the matrix's norm differently, so that steps differ by a thousandth, but the limits agree.
    np.testing.assert_allclose(a.x, b.x, atol=1e-4)
    assert a.objective == pytest.approx(b.objective, rel=1e-5)


def test_noise_ends_at_a_floor_and_the_polish_goes_on() -> None:
    lp = family("staircase", 40, np.random.default_rng(0))
    best = HighsSimplex().solve(lp).objective
    noisy = RramPdhg(tile=64, tolerance=1e-6).solve(lp)
    assert noisy.status == "noise floor"
    assert abs(noisy.objective - best) / abs(best) < 0.1
    polished = RramPdhg(tile=64, tolerance=1e-6, polish=True).solve(lp)
    assert polished.status == "optimal"
    assert polished.objective == pytest.approx(best, rel=1e-5)
    assert polished.energy.joules > noisy.energy.joules


def test_reads_are_counted_and_writes_do_not_grow() -> None:
    lp = family("covering", 24, np.random.default_rng(0))
    bills = [RramPdhg(tile=64, correct=0, tolerance=1e-12, most=most).solve(lp) for most in (64, 128)]
    assert bills[0].energy.pulses == bills[1].energy.pulses
    assert bills[0].energy.write_joules == bills[1].energy.write_joules
    # Two products an iteration beside Lanczos' own; the first read of zero prices reads nothing.
    assert bills[1].energy.reads - bills[0].energy.reads == 2 * 64


def test_the_norm_in_memory() -> None:
    lp = family("planted", 24, np.random.default_rng(0))
    p = scaled(lp, norms=False)
    truth = float(np.linalg.norm(p.matrix.toarray(), 2))
    assert norm2(p, np.random.default_rng(0)) == pytest.approx(truth, rel=1e-3)
    from armillary.crossbar import Converters, Crossbar
    from armillary.crossbar.cells import device

    m, n = p.matrix.shape
    symmetric = np.zeros((m + n, m + n))
    symmetric[:m, m:] = p.matrix.toarray()
    symmetric[m:, :m] = symmetric[:m, m:].T
    ideal = Crossbar(symmetric, device("EpiRAM").ideal(), converters=Converters(None, None))
    x = np.random.default_rng(1).normal(size=n)
    np.testing.assert_allclose(ideal.multiply(np.concatenate([np.zeros(m), x])), np.concatenate([p.matrix @ x, np.zeros(n)]), atol=1e-9)
    assert RramPdhg()._norm(ideal, np.random.default_rng(2)) == pytest.approx(truth, rel=1e-6)
    above = 0
    # On matrices this small several BLAS threads only wait for each other.
    with threadpool_limits(1):
        for seed in range(40):
            noisy = Crossbar(symmetric, "EpiRAM", 64, correct=1, seed=seed)
            above += RramPdhg()._norm(noisy, np.random.default_rng(seed)) * 1.05 * 1.015 >= truth
    assert above >= 38


def test_ranks_share_the_arrays() -> None:
    lp = family("covering", 20, np.random.default_rng(0))
    alone = IDEAL.solve(lp).objective
    for ranks in (1, 2, 3, 4):
        found = comm.run(lambda ranked: float(IDEAL.solve(lp, comm=ranked).objective), ranks=ranks).values
        assert found == pytest.approx([alone] * ranks, rel=1e-6)


def test_advice_follows_the_pulse() -> None:
    lp = family("planted", 60, np.random.default_rng(0))
    fast, slow = advise(lp, "TaOx-HfOx"), advise(lp, "Ag-aSi")
    assert fast.program_s < 0.01 < 1 < slow.program_s
    assert fast.pays_after < slow.pays_after


_BITS = """
import hashlib, numpy as np
from armillary.numerics.lp import PdlpAverage, Pdhg, R2Hpdhg, RramPdhg
from armillary.numerics.lp.workload import family
said = hashlib.sha256()
for name in ("staircase", "regression"):
    lp = family(name, 60, np.random.default_rng(0))
    for method in (RramPdhg(most=640), R2Hpdhg(presolve="light"), PdlpAverage(presolve="off", most=640), Pdhg(most=640)):
        found = method.solve(lp)
        bill = found.energy and (found.energy.joules, found.energy.seconds, found.energy.pulses)
        said.update(found.x.tobytes() + found.y.tobytes() + repr((found.iterations, found.gap, found.objective, bill)).encode())
print(said.hexdigest())
"""


def test_points_have_the_same_bits_under_every_blas() -> None:
    # The sums of a BLAS and NumPy's functions differ in their last bits on narrow registers.
    narrow = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512_SKX AVX2 FMA3", "PYTHONWARNINGS": "ignore"}
    there = subprocess.Popen([sys.executable, "-c", _BITS], env=os.environ | narrow, stdout=subprocess.PIPE, text=True)
    exec(_BITS, {"print": (here := []).append})
    assert there.communicate(timeout=120)[0].split() == here


def test_the_top_of_a_tridiagonal_matrix() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 40):
        diagonal, beside = rng.normal(size=size), rng.uniform(0.1, 1, size - 1)
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        top, last = top_of_tridiagonal(diagonal.tolist(), beside.tolist())
        assert top == pytest.approx(values[-1], rel=1e-12)
        assert last == pytest.approx(abs(vectors[-1, -1]), rel=1e-6, abs=1e-12)


def test_sums_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    for size in (0, 1, 3, 4, 1001):
        a, b = rng.normal(size=size), rng.normal(size=size)
        assert dot(a, b) == pytest.approx(float(a @ b), rel=1e-12, abs=1e-12)


# No optimum


def program(
    rows: list[list[float]], low: list[float], high: list[float], cost: list[float], lower: Any = None, upper: Any = None
) -> LinearProgram:
    n = len(cost)
    return LinearProgram(
        np.array(cost, float), csr_array(np.array(rows, float).reshape(-1, n)), np.array(low, float), np.array(high, float),
        np.zeros(n) if lower is None else np.array(lower, float), np.full(n, INF) if upper is None else np.array(upper, float),
    )  # fmt: skip


@pytest.mark.parametrize("method", [*FIRST_ORDER, IDEAL], ids=lambda m: type(m).__name__)
def test_infeasible_programs_come_with_their_proof(method: Any) -> None:
    lp = program([[1, 1], [1, 1]], [3, -INF], [INF, 2], [1, 1])
    found = method.solve(lp)
    assert found.status == "infeasible"
    assert kkt.proves_infeasible(lp, found.ray, 1e-6)
    # By hand, these prices of the rows say that something is positive which cannot be, because x ≥ 0.
    assert (lp.matrix.T @ found.ray <= 1e-6).all()
    assert found.ray[0] * 3 + found.ray[1] * 2 > 0


@pytest.mark.parametrize("method", [*FIRST_ORDER, IDEAL], ids=lambda m: type(m).__name__)
def test_unbounded_programs_come_with_their_direction(method: Any) -> None:
    lp = program([[1, -1]], [-INF], [1], [-1, -1])
    found = method.solve(lp)
    assert found.status == "unbounded"
    assert kkt.proves_unbounded(lp, found.ray, 1e-6)
    assert lp.cost @ found.ray < 0


def test_what_is_no_proof_is_none() -> None:
    lp = program([[1, 1]], [1], [INF], [1, 1])
    assert not kkt.proves_infeasible(lp, np.array([1.0]), 1e-6)
    assert not kkt.proves_infeasible(lp, np.array([0.0]), 1e-6)
    assert not kkt.proves_unbounded(lp, np.array([1.0, 1.0]), 1e-6)


@pytest.mark.parametrize("method", DIGITAL, ids=lambda m: type(m).__name__)
def test_degenerate_programs(method: Any) -> None:
    fixed = program([[1, 1]], [2], [INF], [1, 2], [0, 0.5], [INF, 0.5])
    assert method.solve(fixed).objective == pytest.approx(2.5, abs=1e-4)
    free = program([[1, 1], [1, -1]], [1, 0], [1, 0], [1, 1], [-INF, -INF])
    np.testing.assert_allclose(method.solve(free).x, [0.5, 0.5], atol=1e-4)
    empty_column = program([[1, 0]], [1], [INF], [1, 1])
    np.testing.assert_allclose(method.solve(empty_column).x, [1, 0], atol=1e-4)
    no_rows = LinearProgram(np.array([1.0, -1.0]), csr_array((0, 2)), np.empty(0), np.empty(0), np.zeros(2), np.array([INF, 3.0]))
    assert method.solve(no_rows).x.tolist() == [0, 3]
    lost = replace(no_rows, upper=np.array([INF, INF]))
    assert method.solve(lost).status == "unbounded"
    maximised = replace(small(), sense=-1, cost=-np.ones(2))
    assert method.solve(maximised).objective == pytest.approx(scipy_max(), abs=1e-4)


def scipy_max() -> float:
    found = scipy.optimize.linprog([-1, -1], A_ub=[[3, 2]], b_ub=[8], A_eq=[[1, 2]], b_eq=[5], bounds=[(0, None), (0, 2)])
    return float(-found.fun)


# The call


def test_linprogs_arguments_and_answers() -> None:
    arguments: dict[str, Any] = {"c": [1, 1], "A_ub": [[3, 2]], "b_ub": [8], "A_eq": [[1, 2]], "b_eq": [5], "bounds": [(0, None), (0, 2)]}
    ours, theirs = solve(**arguments), scipy.optimize.linprog(**arguments)
    assert ours.success
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-4)
    np.testing.assert_allclose(ours.slack, theirs.slack, atol=1e-3)
    assert ours.fun == pytest.approx(theirs.fun, abs=1e-4)
    assert solve(c=[1], A_ub=[[1]], b_ub=[-1]).status == 2
    assert solve(c=[-1], A_ub=[[-1]], b_ub=[1]).status == 3
    assert from_linprog([1, 1], bounds=[(1, 2), (None, 3)]).lower.tolist() == [1, -INF]


def test_solve_by_name_and_seed() -> None:
    a, b = (solve(small(), "rram-pdhg", tile=8, seed=s) for s in (1, 1))
    assert (a.x == b.x).all()
    assert a.energy.joules == b.energy.joules
    assert solve(small(), tol=1e-3).iterations <= solve(small(), tol=1e-9).iterations


def test_bad_input_is_refused() -> None:
    for call, says in (
        (lambda: solve(small(), "magic"), "unknown method"),
        (lambda: solve(), "neither"),
        (lambda: program([[1]], [2], [1], [1]), "lower one"),
        (lambda: program([[1]], [np.nan], [1], [1]), "NaN"),
        (lambda: program([[np.inf]], [0], [1], [1]), "not finite"),
        (lambda: program([[1]], [0, 1], [1, 1], [1]), "shape"),
        (lambda: solve(c=[1], A_ub=[[1]]), "right-hand side"),
        (lambda: solve(small(), "rram-pdhg", device="steam"), "device"),
        (lambda: solve(small(), "rram-pdhg", tile=0), "tile"),
    ):
        with pytest.raises(InputError, match=says):
            call()
