"""The judge: closed forms, max-min rates against the engine's, bounds, and promises on work that fits the model and work that does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workflow_examples import TWO, TWO_COSTS, chain, plain_machine

from armillary.engine import max_min
from armillary.errors import InputError
from armillary.scheduling.workflow import (
    Machine,
    Planner,
    Player,
    Workflow,
    built_in,
    enumerate_configurations,
    judge,
    makespans,
)
from armillary.scheduling.workflow.simulation.from_costs import judge_costs
from armillary.scheduling.workflow.simulation.judge import chosen, noise
from armillary.scheduling.workflow.simulation.play import _add, _flows, _share, _uses
from armillary.streams import stream


def alike(count: int, size: float, seconds: float, written: float = 0.0) -> Workflow:
    """Tasks that all read one file and write one each."""
    outputs = [written] * count if written else []
    return Workflow.of(
        "alike", ["k"] * count, [seconds] * count, [1] * count, [size, *outputs], [-1, *(range(count) if written else [])],
        [[0]] * count, [[] for _ in range(count)],
    )  # fmt: skip


def test_a_task_alone_reads_computes_and_writes() -> None:
    played = Player(chain([1000, 500], [7.0]), plain_machine(), 1).play([0])
    assert played.makespan == pytest.approx(1000 / 100 + 7 + 500 / 100)
    assert played.times[0].tolist() == pytest.approx([0, 0, 10, 17, 22])
    assert played.copied == 0


def test_a_local_tier_is_filled_first_and_flushed_last() -> None:
    """1,000 B in over the shared tier (10 s), read at 1,000 B/s (1 s), 7 s, write 500 B (0.5 s), flush at 100 B/s (5 s)."""
    played = Player(chain([1000, 500], [7.0]), plain_machine(), 1).play([1])
    assert played.makespan == pytest.approx(10 + 1 + 7 + 0.5 + 5)
    assert played.copied == 1500


def test_two_stages_on_every_pair_of_tiers() -> None:
    """Files of 1,000, 2,000 and 300 bytes: what is copied where decides."""
    player = Player(chain([1000, 2000, 300], [0.0, 0.0]), plain_machine(), 1)
    assert player.play([0, 0]).makespan == pytest.approx(10 + 20 + 20 + 3)
    assert player.play([1, 1]).makespan == pytest.approx(10 + 1 + 2 + 2 + 0.3 + 3)
    assert player.play([1, 0]).makespan == pytest.approx(10 + 1 + 2 + 20 + 20 + 3)
    assert player.play([0, 1]).makespan == pytest.approx(10 + 20 + 20 + 2 + 0.3 + 3)
    assert player.play([1, 2]).makespan == pytest.approx(10 + 1 + 2 + 2 + 0.2 + 0.03 + 3), "between two local tiers at 1,000 B/s"


def test_tasks_beyond_the_cores_run_in_waves() -> None:
    assert Player(alike(5, 0.0, 3.0), plain_machine(cores=2), 1).play([0]).makespan == pytest.approx(9)
    assert Player(alike(5, 0.0, 3.0), plain_machine(cores=2), 2).play([0]).makespan == pytest.approx(6)
    wide = replace(alike(3, 0.0, 3.0), cores=np.full(3, 2))
    assert Player(wide, plain_machine(cores=2), 1).play([0]).makespan == pytest.approx(9)
    with pytest.raises(InputError, match="needs 2 cores"):
        Player(wide, plain_machine(cores=1), 1)


def test_readers_share_the_node_and_then_the_whole_file_system() -> None:
    """Two tasks of one node share 100 B/s; eight on four nodes share 300 B/s."""
    assert Player(alike(2, 600.0, 0.0), plain_machine(), 1).play([0]).makespan == pytest.approx(12)
    assert Player(alike(8, 600.0, 0.0), plain_machine(), 4).play([0]).makespan == pytest.approx(16)


def test_a_file_is_copied_once_per_node() -> None:
    """Two tasks of one node need one copy of 600 B; on two nodes, two copies at once."""
    one = Player(alike(2, 600.0, 0.0), plain_machine(), 1).play([1])
    assert one.copied == 600
    assert one.makespan == pytest.approx(6 + 2 * 600 / 1000)
    two = Player(alike(2, 600.0, 0.0), plain_machine(), 2).play([1])
    assert two.copied == 1200
    assert two.makespan == pytest.approx(6 + 600 / 1000)


def test_local_data_of_another_node_comes_over_the_network() -> None:
    """Two producers on two nodes, one consumer of both on the first: 1,000 B come over 500 B/s."""
    gather = Workflow.of(
        "gather", ["p", "p", "c"], [0.0, 0.0, 0.0], [1, 1, 1], [1000, 1000], [0, 1], [[], [], [0, 1]], [[], [], []]
    )
    played = Player(gather, plain_machine(), 2).play([1, 1])
    assert played.copied == 1000
    assert played.makespan == pytest.approx(1 + 2 + 2)


def test_there_are_no_barriers() -> None:
    """A short chain ends its second stage before the long task of the first stage has ended."""
    both = Workflow.of(
        "both", ["a", "a", "b", "b"], [1.0, 50.0, 1.0, 1.0], [1] * 4, [1.0] * 4, [0, 1, 2, 3], [[], [], [0], [1]], [[] for _ in range(4)]
    )
    played = Player(both, plain_machine(), 1).play([2, 2])
    assert played.times[2, 4] < played.times[1, 4]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 100_000), count=st.integers(1, 12), pools=st.integers(1, 6))
def test_rates_are_max_min_fair(seed: int, count: int, pools: int) -> None:
    rng = np.random.default_rng(seed)
    flows = _flows(count)
    used, weights, caps = [], [], []
    for f in range(count):
        mine = rng.choice(pools, size=int(rng.integers(1, min(4, pools) + 1)), replace=False).tolist()
        weight = (1 / rng.integers(1, 20, len(mine))).tolist()
        caps.append(float(rng.integers(1, 30)))
        _add(flows, 0, f, 1.0, caps[-1])
        for p, w in zip(mine, weight):
            _uses(flows, f, p, w)
        used.append(mine)
        weights.append(weight)
    _share(flows, np.empty(pools), np.empty(pools), np.empty(pools, np.int64))
    wanted = max_min(np.ones(pools), used, uses=weights, caps=np.array(caps))
    assert flows.rate[:count] == pytest.approx(wanted, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 100_000), nodes=st.integers(1, 4), name=st.sampled_from(["genome", "montage", "ddmd", "seismology", "pyflextrkr"])
)
def test_no_run_beats_its_bounds_and_every_task_keeps_its_order(seed: int, nodes: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    machine = Machine.of("tiers-10")
    workflow = built_in(name, rng, 12)
    tier = rng.integers(0, 3, len(workflow.stages))
    played = Player(workflow, machine, nodes).play(tier, noise(workflow.tasks, rng))
    times = played.times
    assert (np.diff(times, axis=1) >= -1e-9).all()
    for t in range(workflow.tasks):
        parents = workflow.parent[workflow.first_parent[t] : workflow.first_parent[t + 1]]
        assert times[t, 0] >= times[parents, 4].max(initial=0.0) - 1e-9
    for node in range(nodes):
        mine = played.node == node
        edges = sorted([(s, 1) for s in times[mine, 1]] + [(e, -1) for e in times[mine, 4]], key=lambda edge: (edge[0], edge[1]))
        assert max(np.cumsum([step for _, step in edges]), default=0) <= machine.cores
    assert played.makespan >= times[:, 4].max() - 1e-9
    alone = np.array([[t.alone(False, 1 << 24), t.alone(True, 1 << 24)] for t in machine.tiers])[tier[workflow.stage]]
    bound = times[:, 1] + workflow.read_bytes / alone[:, 0] + (times[:, 3] - times[:, 2]) + workflow.written_bytes / alone[:, 1]
    assert (times[:, 4] >= bound * (1 - 1e-6) - 1e-9).all()


def test_the_same_run_gives_the_same_bits_and_noise_has_mean_one() -> None:
    machine, workflow = Machine.of("tiers-10"), built_in("genome", np.random.default_rng(0), 20)
    found = enumerate_configurations(Planner.of(workflow, machine, [2]).planning.layout, [2]).at(np.arange(5))
    one, two = (judge(workflow, machine, found, lambda name: stream(0, name))[0] for _ in range(2))
    assert np.array_equal(one, two)
    factors = noise(200_000, np.random.default_rng(0))
    assert factors.mean() == pytest.approx(1, abs=2e-3)
    assert factors.std() == pytest.approx(0.1, abs=2e-3)
    assert len(chosen(1000, 100, np.random.default_rng(0))) == 100
    assert chosen(5, 100, np.random.default_rng(0)).tolist() == [0, 1, 2, 3, 4]


def test_without_noise_and_contention_the_model_promises_what_the_judge_delivers() -> None:
    """One task per stage on one node: nothing overlaps and nothing contends, so barriers cost nothing."""
    machine = plain_machine()
    workflow = chain([1000, 2000, 500, 300], [3.0, 4.0, 5.0])
    planning = Planner.of(workflow, machine, [1]).planning
    promised = makespans(planning.configurations, planning.layout, planning.costs).total
    player = Player(workflow, machine, 1)
    delivered = np.array([player.play(tier).makespan for tier in planning.configurations.tier])
    assert promised == pytest.approx(delivered)


def test_where_stages_overlap_the_model_promises_too_much_time() -> None:
    """Two chains of unequal stages: with barriers 50 + 50 s, without them 51 s; both orders of the model agree with the judge's."""
    machine = plain_machine()
    crossed = Workflow.of(
        "crossed", ["a", "b", "c", "d"], [50.0, 1.0, 1.0, 50.0], [1] * 4, [1.0] * 4, [0, 1, 2, 3], [[], [], [0], [1]], [[] for _ in range(4)]
    )
    planning = Planner.of(crossed, machine, [1]).planning
    promised = makespans(planning.configurations, planning.layout, planning.costs).total
    player = Player(crossed, machine, 1)
    delivered = np.array([player.play(tier).makespan for tier in planning.configurations.tier])
    assert promised.min() > 100
    assert delivered.max() < 52


def test_a_table_of_costs_is_played_with_its_own_seconds() -> None:
    """One task per stage leaves nothing to overlap, so without noise the judge finds the table's own sums."""
    found = enumerate_configurations(TWO, [1])
    judged = judge_costs(TWO, [TWO_COSTS], found, lambda name: stream(0, name), cv=0.0)
    assert judged == pytest.approx(makespans(found, TWO, [TWO_COSTS]).total)
    many = replace(TWO, tasks=(6, 3))
    noisy = judge_costs(many, [TWO_COSTS], found, lambda name: stream(0, name))
    assert (noisy > 0.8 * judged).all()


@pytest.mark.slow
def test_a_judged_configuration_takes_milliseconds() -> None:
    import time

    machine, workflow = Machine.of("tiers-10"), built_in("genome", np.random.default_rng(0), 100)
    player = Player(workflow, machine, 10)
    player.play([2, 2, 2, 2, 2])
    start = time.process_time()
    for _ in range(20):
        player.play([0, 1, 0, 2, 2])
    assert (time.process_time() - start) / 20 < 0.01
