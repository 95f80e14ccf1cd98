"""Graphs, partitions and neighbour samples against exact checks, a chi-square test, and slow references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from armillary.errors import InputError
from armillary.training.prefetch import Graph, Machine, Sampler, communities, cut_edges, partition, rmat, sampled_work
from armillary.training.prefetch.graphs.sampling import local_degree, reach


def star(leaves: int) -> Graph:
    """Vertex 0 with this many neighbours."""
    return Graph.of(np.zeros(leaves, int), np.arange(1, leaves + 1))


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A small R-MAT graph."""
    return rmat(np.random.default_rng(3), 10, edge_factor=8)


def test_a_graph_has_each_edge_once_in_both_directions() -> None:
    made = Graph.of([0, 1, 0, 2, 2], [1, 0, 1, 2, 0])
    assert (made.vertices, made.edges) == (3, 2)
    assert made.indices.tolist() == [1, 2, 0, 0]
    assert made.degree.tolist() == [2, 1, 1]


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60))
def test_every_graph_is_symmetric(n: int, edges: list[tuple[int, int]]) -> None:
    inside = [(u, v) for u, v in edges if u < n and v < n]
    made = Graph.of(np.array([u for u, _ in inside], int), np.array([v for _, v in inside], int), n)
    pairs = {(v, int(w)) for v in range(n) for w in made.indices[made.indptr[v] : made.indptr[v + 1]]}
    assert pairs == {p for u, v in inside if u != v for p in ((u, v), (v, u))}


@pytest.mark.parametrize(("ends", "said"), [(([0, -1], [1, 1]), "negative"), (([0], [1 << 30]), "vertices"), (([0.5], [1.0]), "whole")])
def test_edges_that_lead_nowhere_are_refused(ends: tuple[list[float], list[float]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Graph.of(*ends)


def test_rmat_falls_into_its_quadrants() -> None:
    made = rmat(np.random.default_rng(0), 14)
    half = made.vertices // 2
    source = np.repeat(np.arange(made.vertices), made.degree)
    top = (source < half) & (made.indices < half)
    # 57 % of the edges before repeated ones go, of which the first quadrant has most.
    assert 0.4 < top.mean() < 0.57
    assert made.degree.max() > 50 * made.degree.mean()


def test_communities_keep_their_share_of_edges() -> None:
    made = communities(np.random.default_rng(0), np.full(16, 500), degree=20, inside=0.7)
    source = np.repeat(np.arange(made.vertices), made.degree)
    inside = (source // 500 == made.indices // 500).mean()
    assert 0.68 < inside < 0.74, "70 % and a sixteenth of the rest"
    assert 17 < made.degree.mean() < 20
    assert np.quantile(made.degree, 0.999) > 5 * made.degree.mean()


def test_a_sample_has_distinct_neighbours_and_no_more_than_the_fan_out(graph: Graph) -> None:
    sampler = Sampler(graph, (3, 5), 7)
    seeds = np.flatnonzero(graph.degree)[:20]
    for _ in range(20):
        inputs, edges = sampler.minibatch(seeds)
        assert len(np.unique(inputs)) == len(inputs)
        assert inputs[:20].tolist() == seeds.tolist()
        near = {int(w) for v in inputs for w in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
        assert set(inputs[20:].tolist()) <= near
        # The seeds sample first with the last layer's fan-out, then everyone with the first layer's.
        first = np.minimum(graph.degree[seeds], 5).sum()
        reached, _ = Sampler(graph, (5,), 0).minibatch(seeds)
        assert len(reached) <= 20 + first
        assert edges <= first + 3 * (20 + first)


def test_few_neighbours_are_all_taken() -> None:
    inputs, edges = Sampler(star(4), (10,), 0).minibatch(np.array([0]))
    assert sorted(inputs.tolist()) == [0, 1, 2, 3, 4]
    assert edges == 4


def test_every_neighbour_is_sampled_equally_often() -> None:
    leaves, fan_out, times = 40, 7, 4000
    sampler = Sampler(star(leaves), (fan_out,), 11)
    counts, pairs = np.zeros(leaves), np.zeros((leaves, leaves))
    for _ in range(times):
        inputs, edges = sampler.minibatch(np.array([0]))
        assert edges == fan_out
        assert len(inputs) == 1 + fan_out
        counts[inputs[1:] - 1] += 1
        pairs[np.ix_(inputs[1:] - 1, inputs[1:] - 1)] += 1
    # Without replacement the counts of one minibatch are dependent, which makes chi-square smaller by (n - k) / (n - 1).
    statistic = ((counts - times * fan_out / leaves) ** 2 / (times * fan_out / leaves)).sum() * (leaves - 1) / (leaves - fan_out)
    assert 0.001 < stats.chi2.sf(statistic, leaves - 1) < 0.999
    together = pairs[~np.eye(leaves, dtype=bool)]
    assert together.mean() == pytest.approx(times * fan_out * (fan_out - 1) / (leaves * (leaves - 1)))
    assert together.std() < 2 * np.sqrt(together.mean())


def test_the_reach_is_that_of_a_search_in_breadth(graph: Graph) -> None:
    seeds = np.array([5, 77])
    seen = set(seeds.tolist())
    for hops in range(4):
        assert np.flatnonzero(reach(graph, seeds, hops)).tolist() == sorted(seen)
        seen |= {int(w) for v in seen for w in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}


def test_the_greedy_partition_is_balanced_and_cuts_less_than_chance() -> None:
    made = communities(np.random.default_rng(1), np.full(8, 200), degree=16, inside=0.8)
    owner = partition(made, 4)
    assert np.bincount(owner).tolist() == [400, 400, 400, 400]
    assert cut_edges(made, owner) < 0.8 * 0.75 * made.edges
    slow = slow_greedy(made, 4)
    assert owner.tolist() == slow


def slow_greedy(graph: Graph, parts: int) -> list[int]:
    """Stanton and Kliot's rule, one vertex at a time."""
    room, owner = [-(-graph.vertices // parts)] * parts, [-1] * graph.vertices
    for v in range(graph.vertices):
        near = [sum(owner[w] == p for w in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]) for p in range(parts)]
        owner[v] = max((p for p in range(parts) if room[p]), key=lambda p: (near[p] * room[p], room[p], -p))
        room[owner[v]] -= 1
    return owner


def test_metis_cuts_less_than_the_greedy_stream() -> None:
    pytest.importorskip("pymetis")
    made = communities(np.random.default_rng(1), np.full(8, 200), degree=16, inside=0.8)
    found = partition(made, 4, "metis")
    assert set(found.tolist()) == {0, 1, 2, 3}
    assert cut_edges(made, found) < cut_edges(made, partition(made, 4))


def test_the_local_degree_counts_neighbours_of_one_part(graph: Graph) -> None:
    owner = partition(graph, 3)
    total = sum(local_degree(graph, owner, part) for part in range(3))
    assert np.array_equal(total, graph.degree)


@pytest.mark.parametrize("order", ["shuffled", "stationary", "drift"])
def test_minibatches_ask_for_the_halo_alone(graph: Graph, order: str) -> None:
    owner = partition(graph, 4)
    work = sampled_work(graph, owner, np.random.default_rng(0), machine=Machine("m"), batch=8, minibatches=12, order=order, train_share=0.2)
    assert len(work.trainers) == 4
    for trainer in work.trainers:
        assert trainer.minibatches == 12
        assert (owner[trainer.halo] != trainer.part).all()
        assert np.array_equal(trainer.owner, owner[trainer.halo])
        for t in range(12):
            assert (np.diff(trainer.asks(t)) > 0).all()
        assert trainer.asked.max() < len(trainer.halo)


def test_two_trainers_draw_from_streams_of_their_own(graph: Graph) -> None:
    """The work of one part does not depend on how many others are sampled, nor on the order."""
    owner = partition(graph, 4)
    made = [
        sampled_work(graph, owner, np.random.default_rng(5), machine=Machine("m"), batch=8, minibatches=6, train_share=0.2)
        for _ in range(2)
    ]
    for a, b in zip(made[0].trainers, made[1].trainers, strict=True):
        assert np.array_equal(a.asked, b.asked)
    sizes = [tuple(np.diff(trainer.start).tolist()) for trainer in made[0].trainers]
    assert len(set(sizes)) == 4


def test_drift_moves_through_all_training_vertices() -> None:
    from armillary.training.prefetch.workload import _seeds

    mine = np.arange(100)
    seeds = _seeds(mine, 5, 400, "drift", np.random.default_rng(0))
    assert max(seeds[0]) < 25
    assert set(np.concatenate(seeds).tolist()) == set(range(100))
    early, late = set(np.concatenate(seeds[:50]).tolist()), set(np.concatenate(seeds[200:250]).tolist())
    assert not early & late
    shuffled = _seeds(mine, 5, 40, "shuffled", np.random.default_rng(0))
    assert sorted(np.concatenate(shuffled[:20]).tolist()) == list(range(100)), "an epoch has every vertex once"
    assert np.concatenate(shuffled[:20]).tolist() != np.concatenate(shuffled[20:]).tolist()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"fan_outs": (10, 0)}, "fan-outs"),
        ({"fan_outs": ()}, "fan-outs"),
        ({"order": "sorted"}, "order"),
        ({"minibatches": 1 << 40}, "fewer minibatches"),
        ({"train_share": 1e-9}, "no training vertex"),
    ],
)
def test_work_that_cannot_be_sampled_is_refused(graph: Graph, what: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        sampled_work(graph, partition(graph, 4), np.random.default_rng(0), machine=Machine("m"), **what)  # type: ignore[arg-type]


def test_a_partition_of_another_graph_is_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="one for each vertex"):
        sampled_work(graph, np.zeros(3, np.int16), np.random.default_rng(0), machine=Machine("m"))
    with pytest.raises(InputError, match="parts"):
        partition(graph, 0)
