"""Steps, migrations and whole runs in simulated time, against an event loop and closed forms."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.scheduling.mesh import (
    Baseline,
    Cdp,
    Change,
    Cplx,
    CplxOnline,
    CplxTuned,
    Graph,
    Lpt,
    Machine,
    Metis,
    ablation,
    box_work,
    dial,
    modelled_step_us,
    play,
    scene_work,
    simulate_step,
    tune,
)  # fmt: skip
from armillary.scheduling.mesh.octree.refinement import by_position
from armillary.scheduling.mesh.simulation.step import migrations, simulate_migration
from armillary.scheduling.mesh.tuning.tune import GRID

FOUR = Machine("four", 2, 0.5, 100.0, 2.0, 10.0, 0.25, 0.125)


def event_loop(costs: np.ndarray, placement: np.ndarray, graph: Graph, ranks: int, machine: Machine) -> float:
    """The same step, event by event: a rank's next block, a message at a NIC, a message at a rank."""
    agenda: list[tuple[float, int, int, tuple[str, int]]] = []
    count = 0

    def at(time: float, order: int, *what: object) -> None:
        nonlocal count
        heapq.heappush(agenda, (time, order, count, what))  # type: ignore[arg-type]
        count += 1

    todo = {rank: [b for b in range(len(costs)) if placement[b] == rank] for rank in range(ranks)}
    nic_out, nic_in = {}, {}  # type: ignore[var-annotated]
    computed, arrived = [0.0] * ranks, {rank: [] for rank in range(ranks)}  # type: ignore[var-annotated]
    for rank in range(ranks):
        at(0.0, 0, "go", rank)
    while agenda:
        now, _, _, (what, which) = heapq.heappop(agenda)
        if what == "go":
            if not todo[which]:
                computed[which] = now
                continue
            block = todo[which].pop(0)
            now += costs[block]
            for m in range(graph.first[block], graph.first[block + 1]):
                if placement[graph.target[m]] != which:
                    now += machine.send_us
                    at(now, m + 1, "post", m)
            at(now, 0, "go", which)
        else:
            source, target = int(placement[graph.source[which]]), int(placement[graph.target[which]])
            one, other = source // machine.per_node, target // machine.per_node
            if what == "post" and one == other:
                arrived[target].append((now + machine.near_us + graph.size[which] / machine.near_rate, which))
            elif what == "post":
                begin = max(now, nic_out.get(one, 0.0))
                nic_out[one] = begin + graph.size[which] / machine.far_rate
                at(begin + machine.far_us, which + 1, "head", which)
            else:
                begin = max(now, nic_in.get(other, 0.0))
                nic_in[other] = begin + graph.size[which] / machine.far_rate
                arrived[target].append((nic_in[other], which))
    ends = []
    for rank in range(ranks):
        now = computed[rank]
        for time, _ in sorted(arrived[rank]):
            now = max(now, time) + machine.receive_us
        ends.append(now)
    return max(ends) + machine.allreduce_us(ranks)


def test_two_blocks_by_hand() -> None:
    graph = Graph.of([0, 1], [1, 0], [100.0, 40.0], 2)
    costs = np.array([10.0, 30.0])
    reduce_near, reduce_far = FOUR.allreduce_us(2), FOUR.allreduce_us(3)
    assert (reduce_near, reduce_far) == (0.875, 0.875 + 2.375)
    # Rank 1 is the last to post, at 30.25; its 40 bytes need 0.5 + 0.4 inside the node, and rank 0 takes 0.125 to receive them.
    assert simulate_step(costs, np.array([0, 1]), graph, 2, FOUR).end == pytest.approx(30.25 + 0.9 + 0.125 + reduce_near)
    # Between nodes they need 2 + 4.
    assert simulate_step(costs, np.array([0, 2]), graph, 3, FOUR).end == pytest.approx(30.25 + 6.0 + 0.125 + reduce_far)
    # On one rank there is no message.
    assert simulate_step(costs, np.array([0, 0]), graph, 1, FOUR).end == 40.0


def test_messages_queue_at_both_nics() -> None:
    # Two senders on node 0 post at the same time; their NIC sends 100 bytes for 10 µs each.
    graph = Graph.of([0, 1], [2, 2], [100.0, 100.0], 3)
    costs = np.array([5.0, 5.0, 0.0])
    out = simulate_step(costs, np.array([0, 1, 2]), graph, 3, FOUR)
    assert out.finished[2] == pytest.approx(5.25 + 2 + 20 + 0.125)
    # Two senders on two nodes to one: now the receiving NIC is the queue, and the answer is the same.
    out = simulate_step(costs, np.array([0, 2, 4]), graph, 5, FOUR)
    assert out.finished[4] == pytest.approx(5.25 + 2 + 20 + 0.125)


@pytest.mark.parametrize("seed", range(8))
def test_three_passes_equal_an_event_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, ranks, m = 40, 9, 150
    graph = Graph.of(rng.integers(0, n, m), rng.integers(0, n, m), rng.random(m) * 200, n)
    costs, placement = rng.random(n) * 30, rng.integers(0, ranks, n)
    assert simulate_step(costs, placement, graph, ranks, FOUR).end == pytest.approx(event_loop(costs, placement, graph, ranks, FOUR))


def test_without_messages_a_step_is_the_largest_load() -> None:
    costs = np.array([3.0, 4.0, 5.0])
    done = simulate_step(costs, np.array([0, 1, 0]), Graph.empty(3), 2, Machine())
    assert done.end == 8.0 + Machine().allreduce_us(2)
    assert done.computed.tolist() == [8.0, 4.0]


def test_the_machine_is_the_presets() -> None:
    machine = Machine.of("amr-4096")
    found = (machine.per_node, machine.near_us, machine.near_rate, machine.far_us, machine.far_rate, machine.send_us, machine.receive_us)
    assert found == pytest.approx((16, 0.6, 10_000, 1.8, 4000, 0.25, 0.25))
    assert machine.allreduce_us(4096) == pytest.approx(4 * 1.1 + 8 * 2.3)


def test_moved_blocks_travel_whole_and_refined_ones_in_parts() -> None:
    before, after = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
    source, target, size = migrations(None, before, after, 800.0, 8)
    assert (source.tolist(), target.tolist(), size.tolist()) == ([0, 1], [1, 0], [800.0, 800.0])
    refined = Change(np.array([0, 1, 2, 3]), np.array([0, 0, 1]), np.array([False, False, True]))
    source, target, size = migrations(refined, np.array([0, 1]), np.array([0, 1, 0]), 800.0, 8)
    assert (source.tolist(), target.tolist(), size.tolist()) == ([0, 1], [1, 0], [100.0, 800.0])
    # 100 bytes inside the node: posted at 0.25, there after 0.5 + 1, received for 0.125.
    assert simulate_migration(np.array([0]), np.array([1]), np.array([100.0]), 2, FOUR) == pytest.approx(0.25 + 1.5 + 0.125)
    assert simulate_migration(*migrations(None, before, before, 800.0, 8), 2, FOUR) == 0.0
    assert len(migrations(by_position(2, 2), np.array([0, 1]), np.array([0, 1]), 1.0, 8)[0]) == 0


@pytest.fixture(scope="module")
def blast() -> object:
    return scene_work("sedov", 128, 15, Machine(), np.random.default_rng(7))


def test_what_is_known_is_the_past(blast) -> None:  # type: ignore[no-untyped-def]
    """A policy that is asked before a step has seen no cost of that step."""
    seen = []

    class Looking(Baseline):
        def place(self, state):  # type: ignore[no-untyped-def]
            seen.append((state.step, state.costs))
            return super().place(state)

    play(blast, Looking())
    assert [step for step, _ in seen] == [0, 5, 10]
    assert np.array_equal(seen[0][1], blast.costs[0]), "before the first step, the measured step before it is known"
    future = replace(blast, costs=(*blast.costs[:6], *(10 * cost for cost in blast.costs[6:])))
    known = [costs for _, costs in seen]
    seen.clear()
    play(future, Looking())
    assert np.array_equal(seen[1][1], known[1])
    assert not np.array_equal(seen[2][1], known[2])


def test_imbalance_and_promise_are_those_of_the_loads() -> None:
    work = box_work("exponential", 128, 3, Machine(), np.random.default_rng(0))
    done = play(work, Cdp())
    load = np.bincount(done.placement, work.costs[1])
    assert done.imbalance == pytest.approx([load.max() / load.mean()] * 3)
    assert done.promise_error == [0.0] * 3, "the costs known are the costs"
    assert done.moved[0] > 0
    assert done.moved[1:] == [0.0, 0.0]
    assert done.migration_us[0] > 0
    assert done.migration_us[1:] == [0.0, 0.0]


def test_a_promise_is_broken_where_costs_are_wrong(blast) -> None:  # type: ignore[no-untyped-def]
    wrong = scene_work("sedov", 128, 15, Machine(), np.random.default_rng(7), shuffled=True)
    plain, shuffled = play(blast, Cplx()).metrics(), play(wrong, Cplx()).metrics()
    assert shuffled["promise_error"] > 0.2
    assert shuffled["imbalance"] > plain["imbalance"]


@pytest.mark.parametrize("seed", range(3))
def test_wrong_costs_leave_cplx_near_the_baseline(seed: int) -> None:
    work = scene_work("sedov", 512, 10, Machine(), np.random.default_rng(seed), shuffled=True)
    assert play(work, Cplx()).metrics()["imbalance"] <= 1.1 * play(work, Baseline()).metrics()["imbalance"]


def test_placing_every_step_is_a_trigger(blast) -> None:  # type: ignore[no-untyped-def]
    assert len(play(blast, Lpt()).place_ms) == 3
    assert len(play(blast, Lpt(trigger="1")).place_ms) == 15
    assert len(play(blast, Lpt(trigger="4")).place_ms) == 6  # Steps 0, 4, 5, 8, 10, 12.


def test_the_model_of_the_step_ranks_placements_as_the_simulator_does() -> None:
    work = box_work("lognormal", 512, 1, Machine(), np.random.default_rng(4))
    promised, delivered = [], []
    for x in GRID:
        placement = Cplx(x=x).session().place(_state(work))
        promised.append(modelled_step_us(work.costs[0], placement, work.graphs[0], 512, work.machine))
        delivered.append(simulate_step(work.costs[0], placement, work.graphs[0], 512, work.machine).end)
    errors = np.abs(np.array(promised) / delivered - 1)
    assert errors.max() < 0.1
    assert delivered[int(np.argmin(promised))] <= 1.03 * min(delivered)


def test_the_model_fails_where_messages_dominate_and_says_less_than_the_truth() -> None:
    """Queues are not in the model: on a machine with slow NICs it promises too little, and its X may be worse."""
    slow = Machine(far_rate=200.0)
    work = box_work("lognormal", 512, 1, slow, np.random.default_rng(4))
    placement = Lpt().session().place(_state(work))
    promised = modelled_step_us(work.costs[0], placement, work.graphs[0], 512, slow)
    delivered = simulate_step(work.costs[0], placement, work.graphs[0], 512, slow).end
    assert 0.5 * delivered < promised < delivered


def test_slow_networks_turn_the_dial_down() -> None:
    work = box_work("lognormal", 512, 1, Machine(), np.random.default_rng(4))
    fast = tune(work.costs[0], work.graphs[0], Machine(), ranks=512)
    slow = tune(work.costs[0], work.graphs[0], Machine(far_rate=50.0), ranks=512)
    assert fast >= 70
    assert slow == 0.0
    assert tune(work.costs[0], work.graphs[0], "amr-512") == fast
    with pytest.raises(InputError, match="ranks"):
        tune(work.costs[0], work.graphs[0], Machine())
    curve = dial(replace(work, machine=Machine(far_rate=50.0)))
    assert min(curve, key=curve.__getitem__) <= 10


def test_a_tuned_x_is_used_from_the_tenth_step_on(blast) -> None:  # type: ignore[no-untyped-def]
    technique = CplxTuned()
    session = technique.session()
    assert session.due(10, False)
    assert not session.due(11, False)
    done = play(blast, technique)
    assert done.step_us[:10] == play(blast, Cplx()).step_us[:10]
    assert done.step_us[10:] != play(blast, Cplx()).step_us[10:]
    still = box_work("lognormal", 512, 15, Machine(), np.random.default_rng(2))
    assert np.mean(play(still, technique).step_us[11:]) <= 1.05 * min(dial(still).values())


def test_a_walk_goes_uphill_and_comes_back() -> None:
    """On a curve with its minimum at X = 25 the walk from 100 gets there and stays near it."""
    technique = CplxOnline(x=100.0, stride=25.0, span=1)
    session = technique.session()
    state = _state(box_work("lognormal", 128, 1, Machine(), np.random.default_rng(0)))
    visited = []
    for step in range(16):
        session.place(replace(state, step=step))
        visited.append(session.x)
        session.observe(state, state.costs, float(state.costs.sum() / state.ranks * (1 + abs(session.x - 25) / 50)))
    assert visited[:5] == [100.0, 75.0, 50.0, 25.0, 0.0]
    assert max(visited[4:]) <= 50.0
    assert visited.count(25.0) >= 4


def test_ablation_switches_every_part_off(blast) -> None:  # type: ignore[no-untyped-def]
    found = ablation(blast)
    whole = found["cplx"]
    assert found["no re-balancing (cdp)"]["locality"] < whole["locality"] < found["no contiguous start (lpt)"]["locality"]
    assert found["placed every step"]["moved"] > whole["moved"]
    assert found["raw costs"] != whole
    assert found["no early stop"].keys() == whole.keys()


def test_metis_keeps_more_bytes_in_the_node_than_lpt() -> None:
    pytest.importorskip("pymetis")
    work = box_work("lognormal", 128, 1, Machine(), np.random.default_rng(0))
    metis, lpt, cplx = (play(work, policy).metrics() for policy in (Metis(), Lpt(), Cplx()))
    assert metis["remote_bytes"] < cplx["remote_bytes"] < lpt["remote_bytes"]
    assert metis["imbalance"] > lpt["imbalance"]


def test_at_equal_imbalance_cplx_keeps_the_curve_together_better_than_metis() -> None:
    pytest.importorskip("pymetis")
    work = box_work("lognormal", 512, 1, Machine(), np.random.default_rng(0))
    metis = play(work, Metis()).metrics()
    x = next(x for x in GRID if play(work, Cplx(x=x)).metrics()["imbalance"] <= metis["imbalance"])
    assert play(work, Cplx(x=x)).metrics()["locality"] <= metis["locality"]


def test_the_same_stream_makes_the_same_work() -> None:
    one, two = (scene_work("orszag", 128, 6, Machine(), np.random.default_rng(3)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one.costs, two.costs, strict=True))
    assert play(one, Cplx()).step_us == play(two, Cplx()).step_us
    assert math.isfinite(play(one, Cplx()).metrics()["step_us"])


def _state(work):  # type: ignore[no-untyped-def]
    from armillary.scheduling.mesh import State

    return State(work.costs[0], work.ranks, work.graphs[0], work.machine)
