"""Offsets from stamps, error budgets and weighted diameters: by hand, and beside networkx."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.network.clocks import ClockNetwork, GcsOneWay, GcsTwoWay, shaped, two_way_offset
from armillary.network.clocks.bounds.budget import bounds, checked_kappa, error_budget, weighted_diameter
from armillary.network.clocks.workload import ClockWork


def test_four_stamps_give_offset_and_delay() -> None:
    offset, delay, error = two_way_offset(0.0, 15e-6, 20e-6, 25e-6)
    assert (offset, delay, error) == pytest.approx((5e-6, 10e-6, 10e-6))


def test_arrays_of_stamps_give_arrays() -> None:
    offset, delay, _ = two_way_offset([0.0, 1.0], [3.0, 2.0], [3.0, 2.5], [2.0, 4.5])
    assert offset.tolist() == [2.0, -0.5]
    assert delay.tolist() == [1.0, 1.5]


@given(st.floats(-5, 5), st.floats(0.001, 3), st.floats(0.001, 3), st.floats(0, 2))
def test_the_error_bounds_what_unlike_ways_do(true: float, there: float, back: float, turn: float) -> None:
    t2 = there + true
    found, delay, error = two_way_offset(0.0, t2, t2 + turn, there + turn + back)
    assert found - true == pytest.approx((there - back) / 2, abs=1e-9)
    assert delay == pytest.approx((there + back) / 2, abs=1e-9)
    assert abs(found - true) <= error + 1e-9


@pytest.mark.parametrize(
    ("stamps", "said"),
    [
        ((5.0, 6.0, 7.0, 4.0), "exchange 1: found an answer that arrived at 4, before its request left at 5"),
        (([0.0, 0.0], [1.0, 3.0], [2.0, 2.0], [9.0, 9.0]), "exchange 2: found an answer that left at 2, before its request arrived at 3"),
        ((0.0, 1.0, 9.0, 4.0), "exchange 1: found an answer that took longer at the remote clock"),
    ],
)
def test_stamps_in_the_wrong_order_are_named(stamps: Any, said: str) -> None:
    with pytest.raises(InputError) as found:
        two_way_offset(*stamps)
    assert said in str(found.value)


def test_the_budget_is_the_sum_that_the_formula_says() -> None:
    network = ClockNetwork.of([(0, 1), (1, 2)], 3, delay=[1e-6, 4e-6], asymmetry=[2e-8, 0.0], jitter=[0.0, 6e-9])  # type: ignore[arg-type]
    budget = error_budget(network, rho=1e-5, mu=1e-4, period=1e-4, grain=1e-9, turnaround=1e-6)
    drift = 1.1e-4 * 1e-4
    assert budget.total.tolist() == pytest.approx([1e-8 + 1e-9 + drift + 5e-12, 3e-9 + 1e-9 + drift + 5e-12])
    assert sum(float(row["mean_s"]) for row in budget.table()) == pytest.approx(float(budget.total.mean()))
    one_way = error_budget(network, rho=1e-5, mu=1e-4, period=1e-4, grain=1e-9, one_way=1.0)
    assert (one_way.total - budget.total).tolist() == pytest.approx([0.5e-6 - 5e-12, 2e-6 - 5e-12])


def test_drift_is_most_of_the_budget_where_links_are_good() -> None:
    network = shaped("ring", 8).with_links(asymmetry=1e-9)
    parts = {str(row["part"]): float(row["share"]) for row in GcsTwoWay().budget(ClockWork(network, grain=0.0, turnaround=0.0)).table()}
    assert parts["drift"] == pytest.approx(11 / 11.5)


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_the_weighted_diameter_is_networkxs(nodes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(nodes, 0.4, seed=seed % 1000)
    graph.add_edges_from(zip(range(nodes - 1), range(1, nodes)))
    for a, b in graph.edges:
        graph[a][b]["delay"] = graph[a][b]["kappa"] = float(rng.random() + 0.01)
    network = ClockNetwork.from_networkx(graph)
    kappa = network.delay
    theirs = max(max(row.values()) for _, row in nx.all_pairs_dijkstra_path_length(graph, weight="kappa"))
    found, exact = weighted_diameter(network, kappa)
    assert exact
    assert found == pytest.approx(theirs)
    loose, exact = weighted_diameter(network, kappa, exact_up_to=1)
    assert not exact
    assert loose >= theirs * (1 - 1e-12)


def test_bounds_by_hand() -> None:
    network = shaped("line", 5)
    found = bounds(network, np.full(4, 1e-7), 1e-5, 1e-4)
    assert found.diameter == pytest.approx(4e-7)
    assert found.exact
    assert found.global_skew == pytest.approx(2 * 4e-7 * 10 / 9)
    assert found.local_skew.tolist() == pytest.approx([1e-7 * (2 * 1 + 1)] * 4)  # ⌈log10(8.9)⌉ = 1


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda: bounds(shaped("line", 3), np.full(2, 1e-7), 1e-4, 1e-4), "expected mu above rho"),
        (lambda: checked_kappa(np.ones(2), 2.0), "expected more than 2"),
        (lambda: error_budget(shaped("line", 3), rho=1e-5, mu=1e-4, period=0.0), "expected a period of more than 0"),
        (lambda: ClockNetwork.of([(0, 1), (2, 3)], 4), "found no way from 0 to 2"),
        (lambda: ClockNetwork.of([(0, 1)], 2, delay=1e-6, asymmetry=2e-6), "expected at most the delay"),
        (lambda: ClockNetwork.of([(0, 1)], 2, jitter=-1e-9), "a jitter of -1e-09 between 0 and 1"),
        (lambda: ClockNetwork.of([(0, 1), (1, 0)], 2), "found two links between"),
        (lambda: ClockNetwork.of([(0, 0), (0, 1)], 2), "a link from 0 to itself"),
        (lambda: ClockNetwork.of([(0, 5)], 2), "found node 5; expected 0 to 1"),
        (lambda: GcsTwoWay(mu=1e-6).bounds(ClockWork(shaped("ring", 4))), "expected mu above rho"),
        (lambda: GcsOneWay(mu=1e-6).start(ClockWork(shaped("ring", 4))), "expected mu above rho"),
        (lambda: ClockWork(shaped("ring", 4), rates="wild"), 'unknown adversary of rates "wild"'),
        (lambda: ClockWork(shaped("ring", 4), judged_s=1e9), "expected at most 5,000,000"),
    ],
)
def test_what_cannot_be_is_one_line(what: Any, said: str) -> None:
    with pytest.raises(InputError) as found:
        what()
    assert said in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("shape", "nodes", "links", "clocks"),
    [
        ("line", 5, 4, 5),
        ("ring", 5, 5, 5),
        ("grid", 16, 24, 16),
        ("torus", 16, 32, 16),
        ("fat-tree", 16, 16 + 32, 36),
        ("dragonfly", 72, 162, 108),
    ],
)
def test_shapes_have_the_links_that_they_should(shape: str, nodes: int, links: int, clocks: int) -> None:
    found = shaped(shape, nodes)
    assert (found.links, found.nodes) == (links, clocks)


def test_geometric_networks_are_connected_and_of_unlike_lengths() -> None:
    found = shaped("geometric", 60, np.random.default_rng(3))
    assert (found.levels >= 0).all()
    assert found.delay.min() >= 505e-9
    assert found.delay.max() <= 1000e-9
    assert np.ptp(found.delay) > 1e-7
