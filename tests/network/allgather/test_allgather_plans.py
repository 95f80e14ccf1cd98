"""Plans: exact small cases, what every plan delivers on any graph, races, bounds on messages, ablations."""

from __future__ import annotations

import allgather_checks as checks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.network.allgather import Cascade, CommonNeighbour, Direct, DistanceHalving, NodeAware, from_edges, from_lists, grid, random
from armillary.network.allgather.graphs.built_in import MATRICES, balanced, matrix, named, of_matrix
from armillary.network.allgather.planning.paths import entries, price
from armillary.network.allgather.planning.problem import problem

PRICES = checks.PRICES


def complete(ranks):
    return random(ranks, 1.0, np.random.default_rng(0))


def between(schedule):
    """(step, node, node, bytes) of every message that leaves its node, sorted."""
    node, far = schedule.problem.node_of, schedule.between_nodes
    columns = (schedule.step, node[schedule.source], node[schedule.destination], schedule.nbytes)
    return sorted(zip(*(column[far].tolist() for column in columns)))


def test_four_nodes_and_one_path_by_hand():
    schedule = Cascade(paths=1).plan(complete(4), 1, 8, prices=PRICES)
    # Ahead: distances 1 and 2; back: distance 1. A node sends one message each way, then hands on one block ahead.
    assert between(schedule) == sorted(
        [(0, u, (u + 1) % 4, 8) for u in range(4)] + [(0, u, (u - 1) % 4, 8) for u in range(4)] + [(1, u, (u + 1) % 4, 8) for u in range(4)]
    )
    assert schedule.chosen == {"paths": 1, "steps": 2}
    assert schedule.steps == 2
    assert len(schedule.copy_step) == 0, "with one rank per node, every block lands in its slot and is handed on from there"
    assert (schedule.inter_node_messages, schedule.inter_node_bytes) == (3, 24)
    for received in checks.carried_out(schedule, checks.blocks_of([8] * 4)):
        assert len(received) == 3 * 8


def test_distances_go_the_shorter_way_round():
    graph = from_edges(5, [0, 0, 0, 0], [1, 2, 3, 4])
    found = entries(problem(graph, 1, 8), 2)
    # Two nodes ahead lie on two paths at position 0, and so do the two nodes back.
    assert list(zip(found.direction.tolist(), found.path.tolist(), found.last.tolist())) == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    found = entries(problem(graph, 1, 8), 1)
    assert list(zip(found.direction.tolist(), found.path.tolist(), found.last.tolist())) == [(0, 0, 1), (1, 0, 1)]


def test_a_block_that_only_neighbours_need_is_never_handed_on():
    ring = from_edges(9, np.arange(9), (np.arange(9) + 1) % 9)
    for k in range(1, 5):
        assert {step for step, *_ in between(Cascade(paths=k).plan(ring, 1, 8, prices=PRICES))} == {0}
    steps = {step for step, *_ in between(Cascade(paths=1, prune=False).plan(ring, 1, 8, prices=PRICES))}
    assert steps == {0, 1, 2, 3}, "without pruning it travels to the end of the path"


def test_messages_per_node_stay_below_the_bound():
    for nodes in (2, 3, 7, 8):
        for k in (1, 2, 3, nodes // 2):
            schedule = Cascade(paths=k).plan(complete(2 * nodes), 2, 8, prices=PRICES)
            k = min(k, max(1, nodes // 2))
            assert schedule.inter_node_messages <= 2 * k + 2 * (-(-(nodes // 2) // k) - 1)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_bytes_into_a_node_are_its_needs_and_what_passes_through(k):
    graph = random(24, 0.2, np.random.default_rng(3))
    what = problem(graph, 3, 10)
    schedule = Cascade(paths=k).plan(graph, 3, 10, prices=PRICES)
    into = np.zeros(8, np.int64)
    for _, _, there, nbytes in between(schedule):
        into[there] += nbytes
    by_hand = np.zeros(8, np.int64)
    for rank in range(24):
        home = rank // 3
        needs = {v for v in range(8) if v != home and what.needed_on[rank, v]}
        for sign, far in ((1, 4), (-1, 3)):
            for path in range(k):
                stops = [(home + sign * m) % 8 for m in range(path + 1, far + 1, k)]
                last = max((i for i, v in enumerate(stops) if v in needs), default=-1)
                for v in stops[: last + 1]:
                    by_hand[v] += 10
    assert into.tolist() == by_hand.tolist()


def test_as_many_paths_as_half_the_nodes_send_what_node_aware_sends():
    for nodes, local in ((8, 3), (7, 2), (2, 4), (5, 1)):
        graph = random(nodes * local, 0.3, np.random.default_rng(nodes))
        cascade = Cascade(paths=nodes // 2).plan(graph, local, 100, prices=PRICES)
        assert between(cascade) == between(NodeAware().plan(graph, local, 100, prices=PRICES))


def test_rotated_nodes_cost_the_same_on_a_moore_graph():
    graph = grid(64, 2, 2, corners=True)
    nodes = np.arange(64) // 8
    for k in (1, 2, 4):
        costs = {price(problem(graph, (nodes + turn) % 8, 64), k, PRICES) for turn in range(8)}
        assert max(costs) == pytest.approx(min(costs), rel=1e-12)
        sent = {Cascade(paths=k).plan(graph, (nodes + turn) % 8, 64, prices=PRICES).inter_node_bytes for turn in range(8)}
        assert len(sent) == 1


def test_what_is_handed_on_again_is_not_copied():
    schedule = Cascade(paths=1).plan(complete(16), 1, 64, prices=PRICES)
    late = (schedule.copy_step > 0) & (schedule.copy_step < schedule.steps - 1)
    assert not late.any(), "with one path, blocks stay in the order of their last takers"


def test_common_neighbours_share_one_message():
    # Ranks 0 to 3 are a group, and all of them send to rank 4; rank 0 alone sends to rank 5.
    graph = from_edges(6, [0, 1, 2, 3, 0], [4, 4, 4, 4, 5])
    schedule = CommonNeighbour().plan(graph, 4, 10, prices=PRICES)
    far = between(schedule)
    assert sorted((step, nbytes) for step, _, _, nbytes in far) == [(1, 10), (1, 40)]
    assert schedule.messages == 5, "three hand their blocks to the one that sends"


def test_halving_hands_a_block_over_once():
    graph = from_edges(8, [0, 0, 0, 0], [4, 5, 6, 7])
    schedule = DistanceHalving().plan(graph, 4, 10, prices=PRICES)
    assert [(n, step) for step, _, _, n in between(schedule)] == [(10, 0)]
    assert schedule.messages == 4, "one to the proxy and three inside the node"


def test_direct_sends_one_message_per_edge_and_copies_nothing():
    graph = checks.awkward(8)
    schedule = Direct().plan(graph, 2, checks.SIZES, prices=PRICES)
    loops = int((graph.sources == graph.receiver).sum())
    assert schedule.messages == graph.edges - loops
    assert len(schedule.copy_step) <= loops


@st.composite
def works(draw):
    ranks = draw(st.integers(1, 11))
    edges = draw(st.lists(st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)), max_size=60))
    nodes = draw(st.lists(st.integers(0, 6), min_size=ranks, max_size=ranks))
    sizes = draw(st.lists(st.sampled_from([0, 1, 3, 9000, 17000]), min_size=ranks, max_size=ranks))
    return from_edges(ranks, [a for a, _ in edges], [b for _, b in edges]), nodes, sizes


@settings(max_examples=60)
@given(works(), st.integers(1, 6), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_every_plan_delivers_what_direct_messages_deliver(work, k, prune, combine, leaders, window):
    graph, nodes, sizes = work
    blocks = checks.blocks_of(sizes)
    own = Cascade(paths=k, prune=prune, combine=combine, leaders=leaders, window=window)
    for technique in (Direct(), NodeAware(), CommonNeighbour(k=k), DistanceHalving(), own):
        schedule = technique.plan(graph, nodes, sizes, prices=PRICES)
        received = checks.carried_out(schedule, blocks)
        for rank in range(graph.ranks):
            assert np.array_equal(received[rank], checks.expected(graph, blocks, rank)), technique
        assert checks.races(schedule) == [], technique


def test_the_search_for_races_finds_one():
    schedule = NodeAware().plan(complete(6), 3, 8, prices=PRICES)
    assert checks.races(schedule) == []
    from dataclasses import replace

    kept = schedule.nbytes > 0
    names = ("step", "source", "destination", "nbytes", "from_place", "from_at", "to_place", "to_at")
    torn = replace(schedule, **{name: getattr(schedule, name)[kept] for name in names})
    assert checks.races(torn), "without its barriers a plan reads what may not be there yet"


def test_sizes_that_differ_and_nodes_that_differ():
    graph, sizes = checks.awkward(8), checks.SIZES
    blocks = checks.blocks_of(sizes)
    for placement in ([0, 0, 0, 0, 0, 1, 1, 2], 3, 8, [5, 5, 9, 9, 9, 1, 1, 1]):
        for technique in checks.TECHNIQUES.values():
            received = checks.carried_out(technique.plan(graph, placement, sizes, prices=PRICES), blocks)
            for rank in range(8):
                assert np.array_equal(received[rank], checks.expected(graph, blocks, rank))


def test_nothing_to_do():
    for technique in checks.TECHNIQUES.values():
        for ranks in (1, 5):
            schedule = technique.plan(from_edges(ranks, [], []), 2, 8, prices=PRICES)
            assert checks.carried_out(schedule, checks.blocks_of([8] * ranks))[0].size == 0
            assert schedule.inter_node_messages == 0


def test_a_plan_that_forgets_a_block_is_refused():
    from armillary.network.allgather.planning.places import laid_out
    from armillary.network.allgather.planning.traffic import Traffic

    what = problem(from_edges(3, [0], [2]), 1, 8)
    with pytest.raises(RuntimeError, match="rank 2 is to receive block 0, which never came to it"):
        laid_out("mine", what, Traffic().messages(), shared=False)
    traffic = Traffic()
    traffic.add(0, [1], [2], [1], [0])
    with pytest.raises(RuntimeError, match="rank 1 sends block 0, which never came to it"):
        laid_out("mine", what, traffic.messages(), shared=False)


def test_graphs_by_name():
    assert grid(25, 2, 1, corners=True).into(12).tolist() == [6, 7, 8, 11, 13, 16, 17, 18]
    assert grid(25, 2, 1, corners=False).into(12).tolist() == [7, 11, 13, 17]
    assert all(len(named("moore:3,1", 27, np.random.default_rng(0)).into(rank)) == 26 for rank in range(27))
    assert grid(4, 2, 3, corners=True).edges == 12, "where the neighbourhood meets itself, a neighbour counts once"
    assert balanced(1024, 3) == (16, 8, 8)
    assert random(50, 0.3, np.random.default_rng(0)).edges == pytest.approx(0.3 * 50 * 49, rel=0.1)
    for name in MATRICES:
        found = matrix(name, 12, 8, np.random.default_rng(0))
        dense = np.zeros((96, 96), bool)
        dense[found.row, found.column] = True
        graph = of_matrix(found, 12)
        for rank in range(12):
            owners = set((np.flatnonzero(dense[8 * rank : 8 * rank + 8].any(axis=0)) // 8).tolist()) - {rank}
            assert set(graph.into(rank).tolist()) == owners, name
    for wrong in ("random:x", "moore:2", "cube:3", "random:1.5", "moore:9,1"):
        with pytest.raises(InputError):
            named(wrong, 8, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("sources", "destinations", "said"),
    [
        ([[1], []], [[], []], "ranks 1 and 0 disagree: 1 lists 0 as a destination 0×, and 0 lists 1 as a source 1×"),
        ([[], [0]], [[1, 1], []], "ranks 0 and 1 disagree: 0 lists 1 as a destination 2×, and 1 lists 0 as a source 1×"),
        ([[2], []], [[], []], "rank 0: found source 2; expected ranks from 0 to 1"),
        ([[], []], [[-1], []], "rank 0: found destination -1; expected ranks from 0 to 1"),
        ([[0.5], []], [[], []], "expected a list of ranks"),
        ([[]], [[], []], "1 lists of sources and 2 of destinations"),
    ],
)
def test_lists_that_disagree_are_refused(sources, destinations, said):
    with pytest.raises(InputError) as error:
        from_lists(sources, destinations)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("placement", "sizes", "said"),
    [
        (0, 8, "found 0 ranks per node"),
        ([0, 1], 8, "expected a node for each of the 3 ranks"),
        (1, -1, "found -1 of rank 0; expected 0 to"),
        (1, [1, 2], "expected bytes, one number or 3"),
        (1, 0.5, "expected bytes"),
        (1, [1, 1 << 40, 1], "of rank 1"),
    ],
)
def test_bad_placements_and_sizes_are_refused(placement, sizes, said):
    with pytest.raises(InputError) as error:
        problem(complete(3), placement, sizes)
    assert said in str(error.value)


def test_paths_are_checked():
    with pytest.raises(InputError, match="expected auto or at least 1"):
        Cascade(paths=0).validate()
    with pytest.raises(InputError, match="because the number of paths depends on it"):
        Cascade().schedule(problem(complete(3), 1, 8))
