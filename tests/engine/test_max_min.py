"""Rates are the weighted max-min fair ones: by hand, by linear programs, by their bottlenecks, and however they came about."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from armillary.engine import Activity, Pool, Simulation, max_min
from armillary.engine.maxmin import RATE
from armillary.errors import InputError


def test_the_short_flow_takes_what_the_long_one_cannot():
    assert max_min([1.0, 2.0], [[0], [0, 1], [1]]).tolist() == [0.5, 0.5, 1.5]


def test_weights_caps_and_usage_by_hand():
    assert max_min([12.0], [[0], [0]], weights=[1.0, 2.0]).tolist() == [4.0, 8.0]
    assert max_min([12.0], [[0], [0], [0]], caps=[1.0, math.inf, 5.0]).tolist() == [1.0, 6.0, 5.0]
    # Three helpers up, the switch combines three streams, one comes down: the rate is common, the switch binds at 9 / 3.
    assert max_min([10.0, 10.0, 10.0, 9.0, 4.0], [[0, 1, 2, 3, 4]], uses=[[1, 1, 1, 3, 1]]).tolist() == [3.0]


def test_a_fatpipe_limits_each_alone():
    assert max_min([2.0, 10.0], [[0, 1], [0, 1], [1]], fatpipe=[True, False]).tolist() == [2.0, 2.0, 6.0]


def test_background_gets_what_foreground_leaves():
    assert max_min([10.0], [[0], [0], [0]], caps=[7.0, math.inf, math.inf], priorities=[0, 1, 1]).tolist() == [7.0, 1.5, 1.5]
    assert max_min([10.0], [[0], [0]], priorities=[3, 1]).tolist() == [0.0, 10.0]


def test_nothing_binds_and_nothing_flows():
    assert max_min([math.inf], [[0], []]).tolist() == [math.inf, math.inf]
    assert max_min([0.0, 1.0], [[0, 1], [1]]).tolist() == [0.0, 1.0]
    assert max_min([1.0], []).tolist() == []


@st.composite
def problems(draw, most_flows=9, most_pools=5):
    flows, pools = draw(st.integers(1, most_flows)), draw(st.integers(1, most_pools))
    positive = st.floats(0.1, 10.0)
    capacities = draw(st.lists(positive, min_size=pools, max_size=pools))
    routes = [draw(st.lists(st.integers(0, pools - 1), min_size=1, max_size=pools, unique=True)) for _ in range(flows)]
    uses = [[draw(positive) for _ in route] for route in routes]
    weights = draw(st.lists(positive, min_size=flows, max_size=flows))
    caps = draw(st.lists(st.one_of(st.just(math.inf), positive), min_size=flows, max_size=flows))
    return np.array(capacities), routes, uses, np.array(weights), np.array(caps)


def random_problem(seed, flows=30, pools=12):
    rng = np.random.default_rng(seed)
    routes = [rng.choice(pools, rng.integers(1, 5), replace=False).tolist() for _ in range(flows)]
    uses = [rng.uniform(0.2, 3.0, len(r)).tolist() for r in routes]
    caps = np.where(rng.random(flows) < 0.3, rng.uniform(0.05, 1.0, flows), np.inf)
    return rng.uniform(1.0, 10.0, pools), routes, uses, rng.uniform(0.2, 5.0, flows), caps


def by_linear_programs(capacities, routes, uses, weights, caps):
    """Raise the smallest x/p as far as it goes, find who cannot have more, fix those, and again."""
    flows = len(routes)
    table = np.zeros((len(capacities), flows + 1))
    for a, (route, use) in enumerate(zip(routes, uses, strict=True)):
        table[route, a] = use
    fixed: dict[int, float] = {}
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    while len(fixed) < flows:
        free = [a for a in range(flows) if a not in fixed]
        rows = np.zeros((len(free), flows + 1))
        for i, a in enumerate(free):
            rows[i, a], rows[i, -1] = -1.0, weights[a]
        bounds = [(fixed[a], fixed[a]) if a in fixed else (0.0, None if math.isinf(caps[a]) else caps[a]) for a in range(flows)]
        level_limits = (np.vstack([table, rows]), np.concatenate([capacities, np.zeros(len(free))]))
        goal = np.zeros(flows + 1)
        goal[-1] = -1.0
        level = linprog(goal, *level_limits, bounds=[*bounds, (0.0, None)], options=tight).x[-1]
        least = [b if a in fixed else (level * weights[a] * (1 - 1e-12), b[1]) for a, b in enumerate(bounds)]
        stuck = []
        for a in free:
            more = np.zeros(flows + 1)
            more[a] = -1.0
            best = linprog(more, table, capacities, bounds=[*least, (0.0, None)], options=tight).x[a]
            if best <= level * weights[a] * (1 + 1e-7):
                stuck.append(a)
        for a in stuck:
            fixed[a] = level * weights[a]
        assert stuck
    return np.array([fixed[a] for a in range(flows)])


@settings(max_examples=25, deadline=None)
@given(problem=problems())
def test_rates_equal_those_of_linear_programs(problem):
    capacities, routes, uses, weights, caps = problem
    found = max_min(capacities, routes, uses=uses, weights=weights, caps=caps)
    np.testing.assert_allclose(found, by_linear_programs(*problem), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_rates_of_thirty_flows_equal_those_of_linear_programs(seed):
    problem = random_problem(seed)
    capacities, routes, uses, weights, caps = problem
    found = max_min(capacities, routes, uses=uses, weights=weights, caps=caps)
    np.testing.assert_allclose(found, by_linear_programs(*problem), rtol=1e-9, atol=1e-9)


def assert_bottlenecks(capacities, routes, uses, weights, caps, rates):
    used = np.zeros(len(capacities))
    for route, use, rate in zip(routes, uses, rates, strict=True):
        for r, u in zip(route, use, strict=True):
            used[r] += u * rate
    assert (used <= capacities * (1 + 1e-9)).all()
    share = rates / weights
    largest = np.zeros(len(capacities))
    for route, s in zip(routes, share, strict=True):
        largest[route] = np.maximum(largest[route], s)
    for a, route in enumerate(routes):
        capped = rates[a] >= caps[a] * (1 - 1e-9)
        bound = any(used[r] >= capacities[r] * (1 - 1e-9) and share[a] >= largest[r] * (1 - 1e-9) for r in route)
        assert capped or bound, f"flow {a} could have more"
        assert rates[a] <= caps[a] * (1 + 1e-12)


@settings(max_examples=80, deadline=None)
@given(problem=problems(most_flows=40, most_pools=15))
def test_every_flow_has_a_bottleneck(problem):
    capacities, routes, uses, weights, caps = problem
    assert_bottlenecks(*problem, max_min(capacities, routes, uses=uses, weights=weights, caps=caps))


def test_every_flow_of_a_large_system_has_a_bottleneck():
    problem = random_problem(7, flows=5000, pools=400)
    capacities, routes, uses, weights, caps = problem
    assert_bottlenecks(*problem, max_min(capacities, routes, uses=uses, weights=weights, caps=caps))


@pytest.mark.parametrize("seed", range(8))
def test_rates_after_two_hundred_changes_equal_a_fresh_solve(seed):
    rng = np.random.default_rng(seed)
    sim = Simulation()
    pools = [Pool(sim, c, f"p{i}") for i, c in enumerate(rng.uniform(1.0, 10.0, 14))]
    alive, all_of_them, cancelled = [], [], 0.0
    for _ in range(200):
        sim.run(until=sim.now + rng.exponential(0.3))
        alive = [a for a in alive if not a.happened]
        what = rng.integers(0, 10)
        if what < 6 or not alive:
            chosen = rng.choice(len(pools), rng.integers(1, 12 if what == 0 else 4), replace=False)
            a = Activity(
                sim,
                rng.exponential(5.0),
                {pools[i]: rng.uniform(0.3, 2.0) for i in chosen},
                weight=rng.uniform(0.5, 2.0),
                cap=rng.uniform(0.1, 2.0) if rng.random() < 0.3 else None,
                priority=int(rng.random() < 0.2),
            )
            alive.append(a)
            all_of_them.append(a)
        elif what < 8:
            gone = alive.pop(rng.integers(len(alive)))
            cancelled += gone.work - gone.remaining
            all_of_them.remove(gone)
            gone.cancel()
        else:
            pools[rng.integers(len(pools))].set_capacity(0.0 if rng.random() < 0.2 else rng.uniform(1.0, 10.0))
        fresh = max_min(
            [p.capacity for p in pools],
            [a._pools for a in alive],
            uses=[a._uses for a in alive],
            weights=[a._weight for a in alive],
            caps=[a._cap for a in alive],
            priorities=[a._priority for a in alive],
        )
        np.testing.assert_allclose([a.rate for a in alive], fresh, rtol=1e-9, atol=1e-9)
    for pool in pools:
        pool.set_capacity(5.0)
    sim.run()
    assert all(a.happened and a.remaining == 0.0 for a in all_of_them)
    assert all(pool.used == 0.0 and not pool.activities for pool in pools)
    assert len(sim.sharing._rows) == len(sim.sharing._owner)


def test_only_what_is_connected_is_solved_again():
    sim = Simulation()
    left, right = Pool(sim, 1.0), Pool(sim, 1.0)
    a, b = left.use(1.0), right.use(1.0)
    assert (a.rate, b.rate) == (1.0, 1.0)
    system = sim.sharing.system
    system.activity[b._row, RATE] = 0.25  # a lie that only a solve of the right pool would put right
    left.set_capacity(0.5)
    assert (a.rate, b.rate) == (0.5, 0.25)
    assert system.capacity[right._index] == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: max_min([math.nan], [[0]]),
        lambda: max_min([-1.0], [[0]]),
        lambda: max_min([1.0], [[1]]),
        lambda: max_min([1.0], [[0]], weights=[0.0]),
        lambda: max_min([1.0], [[0]], caps=[math.nan]),
        lambda: max_min([1.0], [[0]], uses=[[math.nan]]),
        lambda: max_min([1.0], [[0]], uses=[[1.0, 2.0]]),
    ],
)
def test_what_is_no_problem_is_an_input_error(call):
    with pytest.raises(InputError):
        call()
