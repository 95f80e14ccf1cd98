"""What plans deliver: the node against the engine's processor sharing and against queueing theory, and promises against delivery."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from provisioning_problems import line, random_problem

from armillary.engine.compiled import processor_sharing
from armillary.scheduling.provisioning import CloudLike, Nearest, Plan, Requests, Socl, deliver, draw_requests


def one_node(cores: float, load: float, cpu: float = 1.0):  # type: ignore[no-untyped-def]
    """One node, one service of 5 ms, and a user who loads it with so many cores."""
    p = line(1, users=(0,), rate=load / (cpu * 5e-3))
    p = replace(p, cores=np.array([cores]), cpu=np.array([cpu]))
    return p, Plan.of_paths(p, np.ones((1, 1), bool), np.zeros((1, 1), np.int64))


def test_a_node_is_the_engines_processor_sharing() -> None:
    p, plan = one_node(4.0, 3.2)
    requests = draw_requests(p, np.random.default_rng(0), 3000)
    found = deliver(plan, requests).latency
    truth = processor_sharing(requests.arrival, 5.0 * requests.factor[:, 0], 4.0, 1.0) - requests.arrival
    np.testing.assert_allclose(found, truth, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("heavy", [False, True])
def test_one_core_is_insensitive_to_the_law_of_service(heavy: bool) -> None:
    p, plan = one_node(1.0, 0.7)
    rng = np.random.default_rng(2)
    requests = draw_requests(p, rng, 100_000)
    if heavy:
        spread = np.sqrt(np.log(1 + 2.0**2))
        requests = replace(requests, factor=rng.lognormal(-(spread**2) / 2, spread, (100_000, 1)))
    assert deliver(plan, requests).latency.mean() == pytest.approx(5.0 / 0.3, rel=0.05)


def test_four_cores_follow_erlang() -> None:
    p, plan = one_node(4.0, 3.2)
    done = deliver(plan, draw_requests(p, np.random.default_rng(1), 500_000))
    assert done.latency.mean() == pytest.approx(5.0 * (1 + 0.59643 / 0.8), rel=0.03)
    assert done.busy[0] == pytest.approx(0.8, rel=0.03)


def test_a_visit_that_uses_two_cores_fills_a_node_twice_as_fast() -> None:
    wide, plan = one_node(2.0, 1.4, cpu=2.0)
    # Two cores that each visit uses both of are one server of that speed.
    assert deliver(plan, draw_requests(wide, np.random.default_rng(3), 100_000)).latency.mean() == pytest.approx(5.0 / 0.3, rel=0.05)


def test_idle_nodes_deliver_what_is_promised() -> None:
    p = line(3, users=(0, 2), services=2)
    plan = Plan.of_paths(p, np.ones((2, 3), bool), np.array([[1, 2], [2, 0]]))
    requests = draw_requests(p, np.random.default_rng(0), 2000)
    calm = Requests(requests.arrival, requests.user, requests.origin, requests.route, np.ones_like(requests.factor))
    found = deliver(plan, calm)
    assert found.latency[requests.user == 0] == pytest.approx(10 + 8 + 8, rel=1e-6)
    assert found.latency[requests.user == 1] == pytest.approx(10 + 0 + 16, rel=1e-6)


def test_shares_of_routes_are_kept() -> None:
    p = line(2, users=(0,))
    plan = Plan(p, np.ones((1, 2), bool), np.array([0, 0]), np.array([0.25, 0.75]), np.array([[0], [1]]))
    requests = draw_requests(p, np.random.default_rng(0), 8000)
    travelled = deliver(plan, replace(requests, factor=np.full((8000, 1), 1e-6))).latency > 4
    assert travelled.mean() == pytest.approx(0.75, abs=0.02)


def test_origins_are_drawn_in_their_shares() -> None:
    p = random_problem(0, 10)
    requests = draw_requests(p, np.random.default_rng(0), 50_000)
    counts = np.zeros_like(p.origin)
    np.add.at(counts, (requests.user, requests.origin), 1)
    np.testing.assert_allclose(counts / counts.sum(1, keepdims=True), p.origin, atol=0.04)
    np.testing.assert_allclose(np.bincount(requests.user, minlength=10) / 50_000, p.weight, atol=0.01)


@pytest.mark.parametrize("technique", [Socl(), Nearest(), CloudLike()])
@pytest.mark.parametrize("uniform", [False, True])
def test_promises_are_kept_within_contention(technique, uniform: bool) -> None:  # type: ignore[no-untyped-def]
    """The promise leaves contention out, so delivery is slower, but no plan below 0.8 of a node's cores is far off."""
    for seed in range(2):
        p = random_problem(seed, 40, 10, 8, uniform=uniform, ample=False)
        plan = technique.solve(p)
        checked = plan.check()
        if not checked.feasible:
            continue
        done = deliver(plan, draw_requests(p, np.random.default_rng(seed), 20_000))
        assert done.busy.max() < 0.9
        assert 0.97 * checked.latency_ms < done.latency.mean() < 1.35 * checked.latency_ms
        np.testing.assert_allclose(done.busy * p.cores, checked.load, atol=0.15 * p.cores.max())


def test_the_same_requests_give_the_same_latencies() -> None:
    p = random_problem(1, 20, ample=False)
    plan, requests = Socl().solve(p), draw_requests(p, np.random.default_rng(5), 3000)
    assert np.array_equal(deliver(plan, requests).latency, deliver(plan, requests).latency)
