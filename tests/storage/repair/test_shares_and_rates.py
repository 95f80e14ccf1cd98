"""Rates and shares are checked by hand, as properties, and against the brute force over all subsets of helpers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from armillary.errors import InputError
from armillary.storage import repair
from armillary.storage.repair.fullrepair import best_rate, by_highs, peel, shares
from armillary.storage.repair.plans.planner import DESTINATION, Ends, cut

PLANNERS = (repair.Conventional(), repair.Ppr(), repair.Rp(), repair.Pivot(), repair.FullRepair(), repair.SwitchTree(), repair.Ran())
bandwidths = st.lists(st.floats(1, 1000), min_size=3, max_size=9)


def rate(planner: object, up: list[float], down_r: float, k: int, down: list[float] | None = None) -> float:
    plan = planner.plan(repair.Problem.single([*up, 0.0], [*(down or [0.0] * len(up)), down_r], k, size=1 << 20, slice=1))  # type: ignore[attr-defined]
    return plan.rate


def ends(up: np.ndarray, down: np.ndarray, into: float, k: int) -> Ends:
    return Ends(np.asarray(up, float), np.asarray(down, float), into, k, 1.0, np.zeros(len(up), int), 0)


def test_rates_by_hand() -> None:
    """The rate may exceed every single uplink, and the destination caps it."""
    assert rate(repair.Ran(), [10, 10, 10, 4, 2], 100, 3) == pytest.approx(12)
    assert rate(repair.Ran(), [10, 10, 10, 4, 2], 100, 4) == pytest.approx(6)
    assert rate(repair.Ran(), [10] * 5, 100, 3) == pytest.approx(50 / 3)
    assert rate(repair.Ran(), [10] * 5, 12, 3) == pytest.approx(12)
    assert rate(repair.Ran(), [100, 1, 1, 1], 100, 2) == pytest.approx(3)
    assert repair.water_filling([5, 5], 3) == 0.0


def test_rivals_by_hand() -> None:
    up, down = [10.0, 8, 6, 4], [5.0, 20, 2, 9]
    assert rate(repair.Conventional(), up, 12, 3, down) == pytest.approx(4)  # 12 / 3 below the third uplink
    assert rate(repair.Conventional(), up, 90, 3, down) == pytest.approx(6)
    assert rate(repair.SwitchTree(), up, 90, 3, down) == pytest.approx(6)
    assert rate(repair.SwitchTree(), up, 5, 3, down) == pytest.approx(5)
    # The chain needs two helpers that receive, 0 (5) and 1 (8); helper 2 goes first and sends 6.
    assert rate(repair.Rp(), up, 90, 3, down) == pytest.approx(5)
    # At 6 the destination takes 15 streams, so no helper needs to receive.
    assert rate(repair.Pivot(), up, 90, 3, down) == pytest.approx(6)
    # At 6 it takes one stream only; helper 1 takes three.
    assert rate(repair.Pivot(), up, 6, 3, down) == pytest.approx(6)
    # PPR, k = 3: two rounds, 0 and 1 receive; 10 and 6 … the slowest pair of each round counts.
    assert rate(repair.Ppr(), [8, 8, 8], 8, 3, [8, 8, 8]) == pytest.approx(4)


def test_exactly_k_survivors_are_all_used() -> None:
    """With exactly k survivors there is no choice of helpers."""
    for k in (1, 2, 4, 6):
        up = list(np.linspace(3, 9, k))
        plan = repair.Ran().plan(repair.Problem.single([*up, 0], [0] * k + [100], k, size=1000, slice=1))
        assert plan.ranges == [(0, 1000, tuple(range(k)))]
        assert plan.rate == pytest.approx(3)
        assert rate(repair.Ran(), up, 2, k) == pytest.approx(2)


def test_wrap_around_by_hand() -> None:
    """Helpers are numbered from 0."""
    assert repair.wrap_around([1, 1, 0.6, 0.4]) == [(0.0, pytest.approx(0.6), (0, 1, 2)), (pytest.approx(0.6), 1.0, (0, 1, 3))]


@settings(max_examples=300)
@given(st.integers(1, 6), st.lists(st.floats(0.001, 1), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_every_position_has_k_different_helpers_and_every_helper_its_share(k: int, raw: list[float], random: object) -> None:
    """The ranges cover [0, 1), each has k different helpers, and they add up to the shares."""
    weights = np.array(raw)
    if len(weights) < k:
        weights = np.concatenate([weights, np.ones(k - len(weights))])
    level = repair.water_filling(weights, k)
    w = np.minimum(weights, level) / level
    found = repair.wrap_around(w)
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
    """The greatest sum of rates over all k-subsets, within the limits of the uplinks and of the destination."""
    subsets = list(itertools.combinations(range(len(up)), k))
    rows = np.array([[float(i in s) for s in subsets] for i in range(len(up))] + [[1.0] * len(subsets)])
    found: Any = linprog(-np.ones(len(subsets)), A_ub=rows, b_ub=np.append(up, into), method="highs")
    return float(-found.fun)


@settings(max_examples=150)
@given(bandwidths, st.integers(1, 6), st.floats(1, 2000))
def test_water_filling_is_the_brute_force_over_all_subsets(up: list[float], k: int, into: float) -> None:
    k = min(k, len(up))
    assert rate(repair.Ran(), up, into, k) == pytest.approx(brute_force(np.array(up), into, k), rel=1e-9)


@settings(max_examples=100)
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
    """The largest common rate over every k-subset and every tree whose in-degrees fit the downlinks."""
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
        assert repair.Pivot().split(e).rate == pytest.approx(pivot_brute_force(e))
        chains = [min(e.into, *(e.up[i] for i in chain), *(e.down[i] for i in chain[1:])) for chain in itertools.permutations(range(n), k)]
        assert repair.Rp().split(e).rate == pytest.approx(max(chains))


def test_techniques_are_ordered_on_a_thousand_random_cases() -> None:
    """More freedom is never slower, and neither are more helpers or more bandwidth."""
    rng = np.random.default_rng(9)
    for _ in range(1000):
        k = int(rng.integers(1, 11))
        n = k + int(rng.integers(0, 5))
        up, down, into = rng.uniform(10, 100, n), rng.uniform(5, 100, n), float(rng.uniform(5, 100))
        e = ends(up, down, into, k)
        ran = min(repair.water_filling(up, k), into)
        full, pivot, chain = best_rate(e), repair.Pivot().split(e).rate, repair.Rp().split(e).rate
        assert ran >= full * (1 - 1e-9)
        assert full >= pivot * (1 - 1e-9)
        assert pivot >= chain * (1 - 1e-9)
        assert ran >= repair.SwitchTree().split(e).rate * (1 - 1e-12)
        assert min(repair.water_filling(np.append(up, 1.0), k), into) >= ran * (1 - 1e-12)
        more = up.copy()
        more[rng.integers(n)] *= 2
        assert min(repair.water_filling(more, k), into) >= ran * (1 - 1e-12)


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: p.name)
def test_a_node_that_cannot_send_is_never_used(planner: object) -> None:
    """A node without a free uplink is no helper, and fewer than k helpers are refused."""
    plan = planner.plan(repair.Problem.single([0, 10, 20, 30, 15, 0], [50, 50, 50, 50, 50, 50], 3, size=10_000, slice=10))  # type: ignore[attr-defined]
    assert all(0 not in helpers for _, _, helpers in plan.ranges)
    with pytest.raises(InputError, match="found 2 survivors with uplink free; expected at least k = 3"):
        planner.plan(repair.Problem.single([0, 10, 20, 0, 0, 0], [9] * 6, 3, size=1000, slice=10))  # type: ignore[attr-defined]


@settings(max_examples=40)
@given(st.sampled_from([(6, 4), (9, 6), (14, 10), (16, 12)]), st.integers(0, 2**32 - 1))
def test_simulated_time_is_bytes_over_rate_and_little_more(code: tuple[int, int], seed: int) -> None:
    """This holds for the techniques whose rate is that of a pipeline."""
    n, k = code
    rng = np.random.default_rng(seed)
    up, down = rng.uniform(12e6, 125e6, (2, n))
    whole = repair.Problem.single(up, down, k, size=64 << 20)
    # FullRepair runs up to two dozen small trees, each with one start-up slice per link, so its slices are smaller here to show the rates alone.
    fine = repair.Problem.single(up, down, k, size=64 << 20, slice=4 << 10)
    for planner, problem in (
        (repair.Ran(), whole),
        (repair.FullRepair(), fine),
        (repair.Pivot(), whole),
        (repair.Rp(), whole),
        (repair.SwitchTree(), whole),
    ):
        plan = planner.plan(problem)
        least = problem.size[0] / plan.rate
        took = repair.simulate(plan).seconds
        # Ranges that joined a neighbour below a slice may move a helper's share by a thousandth.
        assert took >= least * (1 - 1e-9)
        assert took <= 1.05 * least
    star = repair.Conventional().plan(whole)
    assert repair.simulate(star).seconds >= 0.999 * whole.size[0] / star.rate


def test_short_ranges_join_their_neighbour() -> None:
    assert cut(np.array([0.5, 0.505, 1.0]), 1000, 10) == [500, 500, 1000]
    assert cut(np.array([0.005, 0.5, 1.0]), 1000, 10) == [0, 500, 1000]
    assert cut(np.array([0.5, 0.995, 1.0]), 1000, 10) == [500, 1000, 1000]
    assert cut(np.array([1.0]), 5, 10) == [5]
