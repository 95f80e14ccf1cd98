"""Rates and shares: by hand, as properties, and against the brute force over all subsets of helpers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from armillary.errors import InputError
from armillary.storage.repair import (
    Conventional,
    FullRepair,
    Pivot,
    Ppr,
    Problem,
    Ran,
    Rp,
    SwitchTree,
    simulate,
    water_filling,
    wrap_around,
)
from armillary.storage.repair.fullrepair import best_rate, by_highs, peel, shares
from armillary.storage.repair.plans.planner import DESTINATION, Ends, cut

PLANNERS = (Conventional(), Ppr(), Rp(), Pivot(), FullRepair(), SwitchTree(), Ran())
bandwidths = st.lists(st.floats(1, 1000), min_size=3, max_size=9)


def rate(planner: object, up: list[float], down_r: float, k: int, down: list[float] | None = None) -> float:
    plan = planner.plan(Problem.single([*up, 0.0], [*(down or [0.0] * len(up)), down_r], k, size=1 << 20, slice=1))  # type: ignore[attr-defined]
    return plan.rate


def ends(up: np.ndarray, down: np.ndarray, into: float, k: int) -> Ends:
    return Ends(np.asarray(up, float), np.asarray(down, float), into, k, 1.0, np.zeros(len(up), int), 0)


def test_rates_by_hand() -> None:
    """(a) of the specification: the rate may exceed every single uplink, and the destination caps it."""
    assert rate(Ran(), [10, 10, 10, 4, 2], 100, 3) == pytest.approx(12)
    assert rate(Ran(), [10, 10, 10, 4, 2], 100, 4) == pytest.approx(6)
    assert rate(Ran(), [10] * 5, 100, 3) == pytest.approx(50 / 3)
    assert rate(Ran(), [10] * 5, 12, 3) == pytest.approx(12)
    assert rate(Ran(), [100, 1, 1, 1], 100, 2) == pytest.approx(3)
    assert water_filling([5, 5], 3) == 0.0


def test_rivals_by_hand() -> None:
    up, down = [10.0, 8, 6, 4], [5.0, 20, 2, 9]
    assert rate(Conventional(), up, 12, 3, down) == pytest.approx(4)  # 12 / 3 below the third uplink
    assert rate(Conventional(), up, 90, 3, down) == pytest.approx(6)
    assert rate(SwitchTree(), up, 90, 3, down) == pytest.approx(6)
    assert rate(SwitchTree(), up, 5, 3, down) == pytest.approx(5)
    # The chain needs two that receive: helpers 0 (5) and 1 (8); helper 2 goes first and sends 6.
    assert rate(Rp(), up, 90, 3, down) == pytest.approx(5)
    # At 6 the destination takes 15 streams: no helper needs to receive.
    assert rate(Pivot(), up, 90, 3, down) == pytest.approx(6)
    # At 6 it takes one stream only; helper 1 takes three.
    assert rate(Pivot(), up, 6, 3, down) == pytest.approx(6)
    # PPR, k = 3: two rounds, 0 and 1 receive; 10 and 6 … the slowest pair of each round counts.
    assert rate(Ppr(), [8, 8, 8], 8, 3, [8, 8, 8]) == pytest.approx(4)


def test_exactly_k_survivors_are_all_used() -> None:
    """(h) of the specification."""
    for k in (1, 2, 4, 6):
        up = list(np.linspace(3, 9, k))
        plan = Ran().plan(Problem.single([*up, 0], [0] * k + [100], k, size=1000, slice=1))
        assert plan.ranges == [(0, 1000, tuple(range(k)))]
        assert plan.rate == pytest.approx(3)
        assert rate(Ran(), up, 2, k) == pytest.approx(2)


def test_wrap_around_by_hand() -> None:
    """(b) of the specification, helpers numbered from 0."""
    assert wrap_around([1, 1, 0.6, 0.4]) == [(0.0, pytest.approx(0.6), (0, 1, 2)), (pytest.approx(0.6), 1.0, (0, 1, 3))]


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 6), st.lists(st.floats(0.001, 1), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_every_position_has_k_different_helpers_and_every_helper_its_share(k: int, raw: list[float], random: object) -> None:
    """(c) of the specification."""
    weights = np.array(raw)
    if len(weights) < k:
        weights = np.concatenate([weights, np.ones(k - len(weights))])
    level = water_filling(weights, k)
    w = np.minimum(weights, level) / level
    found = wrap_around(w)
    assert len(found) <= len(w) + 1
    assert found[0][0] == 0.0
    assert found[-1][1] == 1.0
    given_to = np.zeros(len(w))
    for (start, stop, helpers), following in zip(found, [*found[1:], None]):
        assert stop > start
        assert following is None or following[0] == stop
        assert len(set(helpers)) == k
        given_to[list(helpers)] += stop - start
    assert np.allclose(given_to, w, atol=1e-9)


def brute_force(up: np.ndarray, into: float, k: int) -> float:
    """max sum of rates over all k-subsets, no uplink and not the destination over its limit."""
    subsets = list(itertools.combinations(range(len(up)), k))
    rows = np.array([[float(i in s) for s in subsets] for i in range(len(up))] + [[1.0] * len(subsets)])
    found: Any = linprog(-np.ones(len(subsets)), A_ub=rows, b_ub=np.append(up, into), method="highs")
    return float(-found.fun)


@settings(max_examples=150, deadline=None)
@given(bandwidths, st.integers(1, 6), st.floats(1, 2000))
def test_water_filling_is_the_brute_force_over_all_subsets(up: list[float], k: int, into: float) -> None:
    k = min(k, len(up))
    assert rate(Ran(), up, into, k) == pytest.approx(brute_force(np.array(up), into, k), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 6), st.integers(0, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_full_repair_is_the_linear_program_and_its_trees_keep_to_it(k: int, more: int, seed: int, scarce: bool) -> None:
    rng = np.random.default_rng(seed)
    n = k + more
    up, down = rng.uniform(1, 100, n), rng.uniform(1, 20 if scarce else 100, n)
    e = ends(up, down, float(rng.uniform(1, 100)), k)
    found = best_rate(e)
    highs, *solution = by_highs(e)
    assert found == pytest.approx(highs, rel=1e-8)
    trials: list[Any] = [shares(e, found), solution]
    for x, y, root in trials:
        parts = peel(np.asarray(x) / found, np.asarray(y) / found, root / found, k)
        sent, received, at_root = np.zeros(n), np.zeros(n), 0.0
        for part in parts:
            children = [c for c, _ in part.edges]
            assert len(children) == len(set(children)) == k
            assert children[-1] in [c for c, p in part.edges if p == DESTINATION]
            for child, parent in part.edges:
                sent[child] += part.share
                if parent == DESTINATION:
                    at_root += part.share
                else:
                    assert parent in children
                    received[parent] += part.share
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert (found * sent <= up * (1 + 1e-6)).all()
        assert (found * received <= down * (1 + 1e-6) + 1e-6).all()
        assert found * at_root <= e.into * (1 + 1e-6)


def pivot_brute_force(e: Ends) -> float:
    """Every k-subset, every tree's in-degrees within the downlinks: the largest common rate."""
    best = 0.0
    for subset in itertools.combinations(range(len(e.up)), e.k):
        for degrees in itertools.product(range(e.k + 1), repeat=e.k):
            at_root = e.k - sum(degrees)
            if at_root < 1:
                continue
            limits = [e.into / at_root, *(e.up[i] for i in subset), *(e.down[i] / c for i, c in zip(subset, degrees) if c)]
            best = max(best, min(limits))
    return best


def test_the_best_bottleneck_tree_is_the_exhaustive_one_and_the_chain_too() -> None:
    rng = np.random.default_rng(4)
    for _ in range(60):
        k = int(rng.integers(1, 4))
        n = k + int(rng.integers(0, 3))
        e = ends(rng.uniform(1, 50, n), rng.uniform(1, 50, n), float(rng.uniform(1, 50)), k)
        assert Pivot().split(e).rate == pytest.approx(pivot_brute_force(e))
        chains = [min(e.into, *(e.up[i] for i in chain), *(e.down[i] for i in chain[1:])) for chain in itertools.permutations(range(n), k)]
        assert Rp().split(e).rate == pytest.approx(max(chains))


def test_techniques_are_ordered_on_a_thousand_random_cases() -> None:
    """(e) of the specification: more freedom is never slower; more helpers or bandwidth neither."""
    rng = np.random.default_rng(9)
    for _ in range(1000):
        k = int(rng.integers(1, 11))
        n = k + int(rng.integers(0, 5))
        up, down, into = rng.uniform(10, 100, n), rng.uniform(5, 100, n), float(rng.uniform(5, 100))
        e = ends(up, down, into, k)
        ran = min(water_filling(up, k), into)
        full, pivot, chain = best_rate(e), Pivot().split(e).rate, Rp().split(e).rate
        assert ran >= full * (1 - 1e-9)
        assert full >= pivot * (1 - 1e-9)
        assert pivot >= chain * (1 - 1e-9)
        assert ran >= SwitchTree().split(e).rate * (1 - 1e-12)
        assert min(water_filling(np.append(up, 1.0), k), into) >= ran * (1 - 1e-12)
        more = up.copy()
        more[rng.integers(n)] *= 2
        assert min(water_filling(more, k), into) >= ran * (1 - 1e-12)


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: p.name)
def test_a_node_that_cannot_send_is_never_used(planner: object) -> None:
    """(f) of the specification."""
    plan = planner.plan(Problem.single([0, 10, 20, 30, 15, 0], [50, 50, 50, 50, 50, 50], 3, size=10_000, slice=10))  # type: ignore[attr-defined]
    assert all(0 not in helpers for _, _, helpers in plan.ranges)
    with pytest.raises(InputError, match="found 2 survivors with uplink free; expected at least k = 3"):
        planner.plan(Problem.single([0, 10, 20, 0, 0, 0], [9] * 6, 3, size=1000, slice=10))  # type: ignore[attr-defined]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([(6, 4), (9, 6), (14, 10), (16, 12)]), st.integers(0, 2**32 - 1))
def test_simulated_time_is_bytes_over_rate_and_little_more(code: tuple[int, int], seed: int) -> None:
    """(g) of the specification, for the techniques whose rate is that of a pipeline."""
    n, k = code
    rng = np.random.default_rng(seed)
    up, down = rng.uniform(12e6, 125e6, (2, n))
    whole = Problem.single(up, down, k, size=64 << 20)
    # FullRepair runs up to two dozen small trees at once, each with a start-up slice a link: its slices are smaller here, to see the rates alone.
    fine = Problem.single(up, down, k, size=64 << 20, slice=4 << 10)
    for planner, problem in ((Ran(), whole), (FullRepair(), fine), (Pivot(), whole), (Rp(), whole), (SwitchTree(), whole)):
        plan = planner.plan(problem)
        least = problem.size[0] / plan.rate
        took = simulate(plan).seconds
        # Ranges that joined a neighbour below a slice may move a helper's share by a thousandth.
        assert took >= least * (1 - 1e-9)
        assert took <= 1.05 * least
    star = Conventional().plan(whole)
    assert simulate(star).seconds >= 0.999 * whole.size[0] / star.rate


def test_short_ranges_join_their_neighbour() -> None:
    assert cut(np.array([0.5, 0.505, 1.0]), 1000, 10) == [500, 500, 1000]
    assert cut(np.array([0.005, 0.5, 1.0]), 1000, 10) == [0, 500, 1000]
    assert cut(np.array([0.5, 0.995, 1.0]), 1000, 10) == [500, 1000, 1000]
    assert cut(np.array([1.0]), 5, 10) == [5]
