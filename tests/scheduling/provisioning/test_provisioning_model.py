"""The model: paths against all combinations, networkx and the checker; the integer program against its MPS file."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from provisioning_problems import fastest_path, line, random_problem

from armillary.scheduling.provisioning import Genetic, JointGreedy, LpRound, Nearest, Plan, Random, integer_program, solved
from armillary.scheduling.provisioning.planning.moves import losses
from armillary.scheduling.provisioning.planning.state import State


@given(st.integers(0, 2**31))
@settings(max_examples=10)
def test_free_paths_are_the_fastest_of_all_combinations(seed: int) -> None:
    p = random_problem(seed % 1000, 6, 5, 5)
    rng = np.random.default_rng(seed)
    placed = rng.random((5, 5)) < 0.4
    placed[np.arange(5), rng.integers(5, size=5)] = True
    state = State(p, placed)
    state.route()
    for u in range(len(p.users)):
        assert state.travel[u] == pytest.approx(fastest_path(p, state.plan(), u), rel=1e-12)
        for m in p.chain[p.chain_start[u] : p.chain_start[u + 1]].tolist():
            at = int(np.flatnonzero(p.users_of[m] == u)[0])
            table = state.by_node(m)[at]
            assert table[placed[m]].min() == pytest.approx(state.travel[u], rel=1e-12)


def test_the_table_of_a_service_is_what_moving_it_would_cost() -> None:
    p = random_problem(4, 8, 5, 5)
    state = State(p, np.random.default_rng(0).random((5, 5)) < 0.5)
    for m in p.used.tolist():
        if not state.count[m]:
            state.put(m, 0)
    for m in p.used.tolist():
        table = state.by_node(m)
        for k in range(5):
            alone = state.has.copy()
            alone[m] = False
            alone[m, k] = True
            other = State(p, alone)
            other.route()
            np.testing.assert_allclose(other.travel[p.users_of[m]], table[:, k], rtol=1e-12)


def test_losses_are_what_dropping_costs() -> None:
    p = random_problem(7, 12, 6, 5)
    state = State(p, np.ones((5, 6), bool))
    state.route()
    for m in p.used.tolist():
        for k, loss in zip(state.held[m, : state.count[m]].tolist(), losses(state, m, state.by_node(m)).tolist()):
            without = state.has.copy()
            without[m, k] = False
            other = State(p, without)
            other.route()
            assert other.travel_ms - state.travel_ms == pytest.approx(loss, abs=1e-9)


def test_distances_are_those_of_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    p = random_problem(2, 5, 12, 4)
    p = replace(p, link_mbps=np.random.default_rng(0).uniform(10, 1000, len(p.link_a)))
    from armillary.scheduling.provisioning.problem.problem import distances

    graph = networkx.Graph()
    graph.add_weighted_edges_from(zip(p.link_a.tolist(), p.link_b.tolist(), (8000 / p.link_mbps).tolist()))
    truth = dict(networkx.all_pairs_dijkstra_path_length(graph))
    found = distances(12, p.link_a, p.link_b, p.link_mbps)
    for a, b in itertools.product(range(12), repeat=2):
        assert found[a, b] == pytest.approx(truth[a][b], rel=1e-12)


def test_cores_limit_where_requests_may_go() -> None:
    p = line(2, users=(0, 0), rate=100.0)
    # Each user loads half a core; the first node has room for one.
    p = replace(p, cores=np.array([0.7, 100.0]))
    state = State(p, np.ones((1, 2), bool))
    state.route()
    assert sorted(state.path[:, 0].tolist()) == [0, 1]
    assert not len(state.troubled)
    tight = replace(p, deadline=np.full(2, 6.0))
    state = State(tight, np.ones((1, 2), bool))
    state.route()
    assert len(state.troubled) == 1, "8 ms of travel are too much for a deadline of 6 ms"


def test_prices_find_room_that_order_alone_does_not() -> None:
    """Two nodes, two services that both want the first: capacity routing never overfills, whatever the order."""
    for seed in range(30):
        p = random_problem(seed, 20, 5, 5, ample=False)
        state = State(p, np.ones((5, 5), bool) & (p.space[:, None] > 0))
        state.route()
        assert (state.spare >= -1e-9).all(), seed


def test_the_checker_says_what_is_wrong() -> None:
    p = line(2, users=(0, 1), storage=1, services=2)
    good = Plan.of_paths(p, np.array([[1, 0], [0, 1]]), np.array([[0, 1], [0, 1]]))
    assert good.check().feasible
    assert good.check().latency.tolist() == [18.0, 26.0]
    assert "holds 2 of storage" in Plan.of_paths(p, np.array([[1, 0], [1, 0]]), np.array([[0, 0], [0, 0]])).check().faults[0]
    assert "does not hold" in Plan.of_paths(p, np.array([[1, 0], [0, 1]]), np.array([[0, 0], [0, 1]])).check().faults[0]
    assert "served 0 times" in Plan.of_paths(p, np.array([[1, 0], [0, 1]]), np.array([[-1, -1], [0, 1]])).check().faults[0]
    heavy = replace(p, cores=np.array([1e-3, 1e-3]))
    assert "is loaded with" in replace(good, problem=heavy).check().faults[0]
    assert replace(good, problem=replace(p, deadline=np.array([17.0, 27.0]))).check().late == (0,)


def test_the_objective_divides_by_joint_greedy_whatever_alpha_is() -> None:
    p = random_problem(1, 20)
    assert p.with_alpha(0.9).scale == p.scale
    assert p.with_alpha(None) is p
    found = JointGreedy().solve(p).check()
    assert found.objective <= 1 + 1e-9, "the reference itself is one of its two plans"


def test_the_program_agrees_with_the_checker() -> None:
    p = random_problem(3, 8, 4, 4, ample=False)
    program = integer_program(p)
    for technique in (JointGreedy(), Nearest()):
        plan = technique.solve(p)
        if not plan.check().feasible:
            continue
        values = program.values_of(plan)
        assert float((program.cost * values).sum()) + program.constant == pytest.approx(plan.check().objective, abs=1e-9)
        rows = program.matrix @ values
        assert (rows <= program.high + 1e-9).all()
        assert (rows >= program.low - 1e-9).all()
        again = program.plan(values)
        assert again.check().objective == pytest.approx(plan.check().objective, abs=1e-9)


def test_flows_that_split_become_weighted_routes() -> None:
    p = line(2, users=(0,), services=2)
    program = integer_program(p)
    values = np.zeros(len(program.cost))
    values[:4] = 1
    values[4:6] = (0.25, 0.75)
    values[6:10] = (0.25, 0.0, 0.5, 0.25)
    plan = program.plan(values)
    assert plan.share.sum() == pytest.approx(1.0)
    assert {tuple(path): share for path, share in zip(plan.path.tolist(), plan.share.tolist())} == pytest.approx(
        {(0, 0): 0.25, (1, 0): 0.5, (1, 1): 0.25}
    )
    # 0.75 of the requests travel 8 ms to the second node, and 0.5 of all come back.
    assert plan.check().latency_ms == pytest.approx(10 + 0.75 * 8 + 0.5 * 8)


def test_capacities_that_no_single_path_fits_split_the_flow() -> None:
    p = line(2, users=(0,), rate=200.0)
    p = replace(p, cores=np.array([0.625, 1.25]))  # One core is needed; half and one may be loaded.
    exact = solved(p, limit_s=20)
    assert exact.plan is not None
    assert exact.plan.check().feasible


def test_the_mps_file_has_the_same_optimum(tmp_path: Path) -> None:
    highspy = pytest.importorskip("highspy")
    p = random_problem(2, 4, 3, 3, ample=False)
    p.to_mps(tmp_path / "p.mps")
    highs = highspy.Highs()
    highs.silent()
    assert highs.readModel(str(tmp_path / "p.mps")) == highspy.HighsStatus.kOk
    highs.run()
    exact = solved(p, limit_s=60)
    assert exact.proved
    assert exact.plan is not None
    assert highs.getInfo().objective_function_value == pytest.approx(exact.plan.check().objective, rel=1e-4)


@pytest.mark.parametrize("technique", [Random(), Genetic(generations=30), LpRound(draws=8)])
def test_random_techniques_repeat_with_the_same_stream(technique) -> None:  # type: ignore[no-untyped-def]
    p = random_problem(5, 12, 5, 5, ample=False)
    one, two = (technique.with_rng(np.random.default_rng(3)).solve(p) for _ in range(2))
    assert np.array_equal(one.placed, two.placed)
    assert one.check().feasible


def test_the_genetic_algorithm_is_never_worse_than_its_seed() -> None:
    for seed in range(3):
        p = random_problem(seed, 20, ample=False)
        bred = Genetic(generations=40).solve(p).check().objective
        assert bred <= JointGreedy().solve(p).check().objective + 1e-12


def test_rounding_a_whole_relaxation_changes_nothing() -> None:
    p = line(3, users=(0,), price=3.0)
    assert LpRound(draws=4).solve(p).instances == {"s0": ["n0"]}
