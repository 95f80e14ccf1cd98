"""A presolve changes no optimum, its way back is exact, and no answer becomes worse by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from armillary.errors import InputError
from armillary.numerics.lp import HighsSimplex, LinearProgram, PdlpAverage, R2Hpdhg, solve
from armillary.numerics.lp.presolving import through
from armillary.numerics.lp.presolving.reduction import Reduction, reduced
from armillary.numerics.lp.program import kkt
from armillary.numerics.lp.workload import FAMILIES, family

INF = np.inf
WAYS = ("light", "highs")


def program(rows: Any, low: Any, high: Any, cost: Any, lower: Any, upper: Any) -> LinearProgram:
    n = len(cost)
    vectors = (np.array(vector, float) for vector in (low, high, lower, upper))
    return LinearProgram(np.array(cost, float), csr_array(np.array(rows, float).reshape(-1, n)), *vectors)  # type: ignore[arg-type]


def needs(how: str) -> None:
    if how == "highs":
        pytest.importorskip("highspy")


def random_program(seed: int) -> LinearProgram:
    """Returns a small program with empty, singleton and multiple rows, fixed, free and empty columns; seldom without an optimum."""
    rng = np.random.default_rng(seed)
    m, n = (int(size) for size in rng.integers(1, 9, 2))
    rows = rng.integers(-3, 4, (m, n)) * (rng.uniform(size=(m, n)) < rng.choice([0.2, 0.4, 0.7]))
    if m > 2 and rng.uniform() < 0.5:
        rows[-1] = rows[0] * rng.choice([-2, 1, 3])
    x = rng.integers(-2, 3, n)
    activity = rows @ x
    lower = np.where(rng.uniform(size=n) < 0.85, x - rng.integers(0, 3, n), -INF)
    upper = np.where(rng.uniform(size=n) < 0.7, x + rng.integers(0, 3, n), INF)
    low = np.where(rng.uniform(size=m) < 0.6, activity - rng.integers(0, 2, m), -INF)
    high = np.where(rng.uniform(size=m) < 0.5, activity + rng.integers(0, 2, m), INF)
    if rng.uniform() < 0.15:
        i = int(rng.integers(m))
        low[i], high[i] = np.sort(activity[i] + rng.integers(-4, 5, 2))
    return program(rows, low, high, rng.integers(-1, 5, n), lower, upper)


def test_each_rule_by_hand() -> None:
    # Rows: empty, a bound on x₀, a multiple of row 3, x₀ + x₁ + x₂ = 6, and one that fixes x₄ and x₅ at 0. Column 3 is fixed, x₂ is free.
    rows = [[0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0], [2, 2, 2, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 2]]
    lp = program(rows, [-1, -INF, 2, 6, -INF], [1, 4, INF, 6, 0], [1, 2, 3, 5, -1, -1], [-3, 0, -INF, 7, 0, 0], [INF, 5, INF, 7, INF, INF])
    found = reduced(lp, "light")
    assert found.program is not None
    assert found.program.shape == (0, 0)
    x, y = found.restore(np.zeros(0), np.zeros(0))
    # x₀ and x₁ cost less than x₂ does, so they go to their upper bounds.
    assert x.tolist() == [2, 5, -1, 7, 0, 0]
    # The row's price is x₂'s cost; x₀'s bound saves 1 − 3 for each unit, of which row 1 has two; and row 4 must outbid both columns.
    assert y.tolist() == [0, -1, 0, 3, -1]
    assert kkt.errors(lp, x, y).worst == 0.0
    assert found.program.objective(np.zeros(0)) == pytest.approx(lp.objective(x))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_light_presolve_is_exact(seed: int) -> None:
    lp = random_program(seed)
    best, found = HighsSimplex().solve(lp), reduced(lp, "light")
    if found.finding == "infeasible":
        assert best.status == "infeasible"
    elif found.finding == "no optimum":
        assert best.status in ("infeasible", "unbounded")
    elif found.program is not None:
        inside = HighsSimplex().solve(found.program)
        assert (inside.status == "optimal") == (best.status == "optimal")
        if best.status == "optimal":
            assert inside.objective == pytest.approx(best.objective, abs=1e-8)
            assert kkt.errors(lp, *found.restore(inside.x, inside.y)).worst < 1e-9


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), how=st.sampled_from((*WAYS, "off")))
def test_every_presolve_leads_to_the_optimum_of_highs(seed: int, how: str) -> None:
    needs(how)
    lp = random_program(seed)
    best, found = HighsSimplex().solve(lp), R2Hpdhg(presolve=how, most=200_000).solve(lp)
    if best.status != "optimal":
        # A program may have a direction without an end and no point.
        assert found.status in ("infeasible", "unbounded")
        return
    assert found.status == "optimal"
    assert found.objective == pytest.approx(best.objective, rel=1e-4, abs=1e-4)
    errors = kkt.errors(lp, found.x, found.y)
    assert (errors.primal, errors.dual, errors.gap) == (found.primal_residual, found.dual_residual, found.gap)
    assert errors.worst <= 1e-6


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("method", [R2Hpdhg, PdlpAverage])
def test_no_optimum_is_said_to_be_none(method: Any, how: str) -> None:
    needs(how)
    crossed = program([[1, 1], [1, 0], [0, 1]], [3, -INF, -INF], [INF, 1, 1], [1, 1], [0, 0], [INF, INF])
    found = method(presolve=how).solve(crossed)
    assert found.status == "infeasible"
    assert kkt.proves_infeasible(crossed, found.ray, 1e-6)
    endless = program([[1, -1, 0], [0, 0, 1]], [-INF, 2], [1, 2], [-1, 0, 1], [0, 0, 0], [INF, INF, INF])
    found = method(presolve=how).solve(endless)
    assert found.status == "unbounded"
    assert kkt.proves_unbounded(endless, found.ray, 1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_have_one_optimum_with_every_presolve(name: str) -> None:
    lp = family(name, 60, np.random.default_rng(1))
    best = HighsSimplex().solve(lp).objective
    for how in WAYS:
        needs(how)
        found = solve(lp, presolve=how)
        assert found.status == "optimal"
        assert found.objective == pytest.approx(best, rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("method", [R2Hpdhg, PdlpAverage])
def test_a_way_back_that_fails_makes_no_answer_worse(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lp = family("staircase", 60, np.random.default_rng(0))
    small = replace(lp, cost=lp.cost[::-1].copy())

    def wrong(lp: LinearProgram, how: str) -> Reduction:
        return Reduction("smaller", small, lambda x, y: (x + 1.0, y - 1.0))

    monkeypatch.setattr(through, "reduced", wrong)
    found = method().solve(lp)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(HighsSimplex().solve(lp).objective, rel=1e-5)
    assert kkt.errors(lp, found.x, found.y).worst <= 1e-6
    assert found.history[-1, 0] == found.iterations
    assert (np.diff(found.history[:, 0]) > 0).all()
    # Where the iterations run out, the better of the two points is given.
    short = method(most=400).solve(lp)
    assert short.status == "limit"
    assert short.iterations < 400 + 64


def test_an_unknown_presolve_is_refused() -> None:
    with pytest.raises(InputError, match="presolve"):
        solve(family("planted", 12, np.random.default_rng(0)), presolve="magic")
    with pytest.raises(InputError, match="presolve"):
        reduced(family("planted", 12, np.random.default_rng(0)), "magic")
