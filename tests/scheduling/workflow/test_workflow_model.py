"""Configurations, the analytic makespan, costs from statistics and profiles, and scaling rules."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workflow_examples import GENOME, TWO, TWO_COSTS, by_hand, chain, every_tuple, plain_machine, random_costs

from armillary.errors import InputError
from armillary.scheduling.workflow import (
    Configurations,
    Flow,
    Layout,
    Machine,
    Planner,
    Profile,
    Stage,
    Statistics,
    built_in,
    costs_of,
    enumerate_configurations,
    fit_scaling,
    makespans,
    movements,
    profile_storage,
)
from armillary.scheduling.workflow.planning import makespan as model
from armillary.scheduling.workflow.planning.capacity import bytes_on, fitting, stage_bytes
from armillary.scheduling.workflow.planning.configurations import MOST
from armillary.scheduling.workflow.planning.makespan import critical_path, sensitivity


def test_the_genome_workflow_has_87_valid_configurations_per_scale() -> None:
    assert len(enumerate_configurations(GENOME, [10])) == 87
    assert len(enumerate_configurations(GENOME, [10], cross_local=True)) == 243
    assert len(enumerate_configurations(GENOME, [2, 5, 10])) == 3 * 87
    workflow = built_in("genome", np.random.default_rng(0), 20)
    machine = Machine.of("tiers-10")
    layout = Layout.of(Statistics.of(workflow), machine.names, machine.shared)
    assert len(enumerate_configurations(layout, [10])) == 87


def test_two_stages_by_hand() -> None:
    """T(b,b) = 20, T(b,s) = 18.1, T(s,b) = 17.5 and T(s,s) = 9.3."""
    found = makespans(Configurations(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int8), np.ones(4, np.int64)), TWO, [TWO_COSTS])
    assert found.total == pytest.approx([20, 18.1, 17.5, 9.3])
    assert critical_path(2, found, TWO, np.array([3, 4])) == "stage_in_A(3) -> read_A -> write_A -> stage_out_A -> read_B -> write_B"
    shares = sensitivity(2, found, np.array([1, 0], np.int8), TWO, TWO_COSTS)
    assert (shares.shared_io, shares.local_io, shares.movement) == pytest.approx((8 / 17.5, 1.5 / 17.5, 8 / 17.5))


def layouts() -> st.SearchStrategy[Layout]:
    @st.composite
    def drawn(draw: st.DrawFn) -> Layout:
        count = draw(st.integers(1, 5))
        before = [tuple(p for p in range(s) if draw(st.booleans())) for s in range(count)]
        order = [0] * count
        for s in range(count):
            order[s] = 1 + max((order[p] for p in before[s]), default=-1)
        initial = tuple(not b or draw(st.booleans()) for b in before)
        tiers = draw(st.integers(2, 3))
        return Layout(
            tuple(f"s{n}" for n in range(count)), tuple(order), tuple(before), initial, ("x", "y", "z")[:tiers],
            draw(st.integers(0, tiers - 1)), (1,) * count,
        )  # fmt: skip

    return drawn()


@settings(max_examples=60, deadline=None)
@given(layout=layouts(), seed=st.integers(0, 1000), cross=st.booleans())
def test_enumeration_and_makespans_are_those_of_brute_force(layout: Layout, seed: int, cross: bool) -> None:
    cost = random_costs(layout, 1, np.random.default_rng(seed))
    found = enumerate_configurations(layout, [1], cross_local=cross)
    rows = [tuple(row) for row in found.tier.tolist()]
    wanted = [
        row for row in itertools.product(range(len(layout.tiers)), repeat=len(layout.stages))
        if cross or all(row[s] == row[p] or layout.shared in (row[s], row[p]) for s in range(len(row)) for p in layout.before[s])
    ]  # fmt: skip
    assert rows == wanted
    total = makespans(found, layout, [cost]).total
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "BLOCK", 7)
        assert np.array_equal(model.totals(found, layout, [cost]), total), "blocks change nothing"
    assert total == pytest.approx([by_hand(row, layout, cost) for row in rows])


def test_transitions_are_counted_by_hand() -> None:
    found = movements(Configurations(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int8), np.ones(4, np.int64)), TWO)
    # Out of A, into B and the flush; into A and out of A; into A, fan-out and the flush.
    assert found.tolist() == [0, 3, 2, 3]


def test_too_many_configurations_need_a_sample() -> None:
    many = Layout(
        tuple(f"s{n}" for n in range(30)), tuple(range(30)), ((), *((n,) for n in range(29))), (True,) + (False,) * 29,
        ("b", "s", "t"), 0, (1,) * 30,
    )  # fmt: skip
    with pytest.raises(InputError, match=r"more than 16,384 configurations.*--sample"):
        enumerate_configurations(many, [1], most=1 << 14)
    assert MOST == 1 << 22
    drawn = enumerate_configurations(many, [1, 2], sample=500, most=1 << 14)
    assert len(drawn) == 500
    assert len(np.unique(np.column_stack([drawn.tier, drawn.nodes]), axis=0)) == 500
    for row in drawn.tier:
        assert all(a == b or 0 in (a, b) for a, b in itertools.pairwise(row.tolist()))
    assert len(enumerate_configurations(GENOME, [1, 2], sample=50)) == 50
    again = enumerate_configurations(many, [1, 2], sample=500, most=1 << 14)
    assert np.array_equal(drawn.tier, again.tier)


@pytest.mark.parametrize("nodes", [[], [0], [2, 2]])
def test_numbers_of_nodes_are_checked(nodes: list[int]) -> None:
    with pytest.raises(InputError, match="nodes"):
        enumerate_configurations(GENOME, nodes)


def test_statistics_of_a_chain() -> None:
    stages = Statistics.of(chain([100, 200, 300], [1.0, 2.0])).stages
    assert stages[0].initial == Flow(100, 100)
    assert stages[0].writes == {1: 200.0}
    assert stages[1].reads == {0: Flow(200, 200)}
    assert stages[1].final == 300.0
    assert [s.order for s in stages] == [0, 1]


def test_shared_files_count_once_as_distinct_bytes() -> None:
    statistics = Statistics.of(built_in("genome", np.random.default_rng(0), 100))
    individuals = next(s for s in statistics.stages if s.name == "individuals")
    assert individuals.tasks == 100
    assert individuals.initial is not None
    gib = 1 << 30
    assert individuals.initial.read == pytest.approx(2.4 * gib, rel=1e-4)
    assert individuals.initial.distinct == pytest.approx(24 * gib, rel=1e-4)
    assert individuals.final == 0


def test_costs_of_a_chain_by_hand() -> None:
    cost = costs_of(Statistics.of(chain([1000, 2000, 300], [3.0, 4.0])), plain_machine(), 1)
    assert cost.read == pytest.approx(np.array([[10, 1, 0.1], [20, 2, 0.2]]))
    assert cost.write == pytest.approx(np.array([[20, 2, 0.2], [3, 0.3, 0.03]]))
    assert cost.compute.tolist() == [3.0, 4.0]
    assert cost.stage_in == pytest.approx(np.array([[0, 10, 10], [0, 0, 0]]))
    # To the SSD and to memory the shared tier is the slower end; on one node nothing has to be sent to others.
    assert cost.stage_out[0] == pytest.approx(np.array([[0, 20, 20], [20, 0, 2], [20, 2, 0]]))
    assert cost.flush == pytest.approx(np.array([[0, 0, 0], [0, 3, 3]]))


def test_waves_and_contention_lengthen_a_stage() -> None:
    """Eight tasks on two nodes of two cores: two waves, and two tasks share a node's 100 B/s."""
    count = 8
    machine, stage = plain_machine(), Stage("k", 0, count, 1, 5.0, 5.0, initial=Flow(100.0, 800.0))
    cost = costs_of(Statistics("w", (stage,)), machine, 2)
    assert cost.tasks_per_node.tolist() == [4]
    assert cost.compute.tolist() == [10.0]
    assert cost.read[0] == pytest.approx([2 * 2 * 100 / 100, 2 * 2 * 100 / 1000, 2 * 2 * 100 / 10_000])
    # On four nodes all tasks run at once, but they share 300 B/s: 75 B/s per node.
    assert costs_of(Statistics("w", (stage,)), machine, 4).read[0, 0] == pytest.approx(100 * 2 / 75)


def test_doubling_bytes_doubles_io_and_leaves_computation() -> None:
    statistics = Statistics.of(built_in("montage", np.random.default_rng(0), 20))
    workflow = built_in("montage", np.random.default_rng(0), 20)
    doubled = Statistics.of(replace(workflow, size=2 * workflow.size))
    machine = Machine.of("tiers-10")
    one, two = costs_of(statistics, machine, 5), costs_of(doubled, machine, 5)
    for name in ("read", "write", "stage_in", "stage_out", "flush"):
        assert getattr(two, name) == pytest.approx(2 * getattr(one, name))
    assert np.array_equal(one.compute, two.compute)


def test_a_profile_is_exact_on_its_grid_and_between_its_points_in_between() -> None:
    machine = Machine.of("tiers-10")
    profile = Profile.of(machine)
    ssd = machine.tiers[1]
    assert profile.bandwidth("ssd", "read", 4096, True, 1) == pytest.approx(4096 / (36e-6 + 4096 / 500e6))
    assert profile.bandwidth("ssd", "read", 1 << 20, False, 64) == pytest.approx(ssd.read_rate)
    low, high = (profile.bandwidth("beegfs", "read", size, True, 1) for size in (4096, 16384))
    assert profile.bandwidth("beegfs", "read", 8192, True, 1) == pytest.approx((low * high) ** 0.5)
    assert profile.bandwidth("beegfs", "read", 1, True, 1) == low
    for wrong in (("ssd", "erase"), ("tape", "read")):
        with pytest.raises(InputError, match="unknown"):
            profile.bandwidth(*wrong, 4096)


def test_a_directory_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    grid = profile_storage(tmp_path, transfers=(4096, 65536), workers=(1, 2), file_bytes=1 << 17)
    assert grid.rate.shape == (2, 2, 2, 2)
    assert (grid.rate > 0).all()
    assert not list(tmp_path.iterdir())
    machine = plain_machine()
    profile = Profile.of(machine).replaced("s", grid)
    assert profile.bandwidth("s", "write", 4096, False, 1) == pytest.approx(float(grid.rate[1, 0, 0, 0]))
    for wrong in ({"transfers": (5000,)}, {"workers": (2, 1)}, {"workers": (128,)}, {"file_bytes": 1 << 40}):
        with pytest.raises(InputError):
            profile_storage(tmp_path, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="directory"):
        profile_storage(tmp_path / "none")


def test_scaling_rules_find_the_exponents_that_made_the_data() -> None:
    def at(scale: float) -> Statistics:
        wide = Stage("wide", 0, round(10 * scale), initial=Flow(100.0, 1000.0 * scale), writes={1: 50.0})
        narrow = Stage("narrow", 1, 1, reads={0: Flow(500.0 * scale, 500.0 * scale)}, final=7.0 * scale)
        return Statistics("w", (wide, narrow))

    rules = fit_scaling([(1, at(1)), (2, at(2)), (4, at(4))])
    assert rules.tasks == pytest.approx({"wide": 1.0, "narrow": 0.0})
    assert rules.bytes == pytest.approx({"wide": 0.0, "narrow": 1.0})
    projected = rules.project(at(4), 8)
    assert [stage.tasks for stage in projected.stages] == [80, 1]
    assert projected.stages[1].reads[0].read == pytest.approx(4000.0)
    assert projected.stages[0].initial is not None
    assert projected.stages[0].initial.distinct == pytest.approx(8000.0)
    single = fit_scaling([(1, at(1))])
    assert single.tasks == {"wide": 1.0, "narrow": 1.0}
    assert single.bytes == {"wide": 0.0, "narrow": 0.0}
    with pytest.raises(InputError, match="expected wide, narrow"):
        fit_scaling([(1, at(1)), (2, Statistics("w", at(2).stages[:1]))])
    with pytest.raises(InputError, match="above 0"):
        fit_scaling([(0, at(1))])


def test_projected_statistics_predict_the_larger_workflow() -> None:
    """Rules from 10 and 20 tasks per stage give the makespans of 40, which were not observed."""
    made = {n: Statistics.of(built_in("seismology", np.random.default_rng(0), n)) for n in (10, 20, 40)}
    rules = fit_scaling([(10, made[10]), (20, made[20])])
    machine = Machine.of("tiers-10")
    layout = Layout.of(made[40], machine.names, machine.shared)
    found = enumerate_configurations(layout, [2])
    wanted = makespans(found, layout, [costs_of(made[40], machine, 2)]).total
    guessed = makespans(found, layout, [costs_of(rules.project(made[20], 40), machine, 2)]).total
    assert np.abs(guessed / wanted - 1).max() < 0.15


def test_files_that_do_not_fit_make_a_configuration_invalid() -> None:
    machine = Machine.of("tiers-10")
    statistics = Statistics.of(built_in("genome", np.random.default_rng(0), 20))
    layout = Layout.of(statistics, machine.names, machine.shared)
    found = enumerate_configurations(layout, [1])
    used = bytes_on(found, layout, statistics)
    everything = found.tier.tolist().index([2, 2, 2, 2, 2])
    assert used[everything].tolist() == pytest.approx([0, 0, stage_bytes(statistics, 1).sum()])
    assert used[0].tolist() == [0, 0, 0]
    small = replace(machine, tiers=(*machine.tiers[:2], replace(machine.tiers[2], capacity=10e9)))
    left = fitting(found, layout, statistics, small)
    assert 0 < len(left) < len(found)
    assert not ((left.tier == 2) & (stage_bytes(statistics, 1) > 10e9)).any()
    planner = Planner.of(built_in("genome", np.random.default_rng(0), 20), small, [1], capacity=True)
    assert len(planner.planning.configurations) == len(left)


def test_a_cluster_without_a_shared_tier_is_refused() -> None:
    with pytest.raises(InputError, match="one of kind pfs"):
        Machine.of("laptop")
    with pytest.raises(InputError, match="unknown tier"):
        Machine.of("tiers-10", ("tape",))
    assert Machine.of("tiers-10", ("beegfs", "tmpfs")).names == ("beegfs", "tmpfs")
    with pytest.raises(InputError, match="11 nodes"):
        costs_of(Statistics.of(chain([1, 1], [1.0])), Machine.of("tiers-10"), 11)


def test_all_tuples_of_a_small_layout() -> None:
    assert len(every_tuple(TWO)) == 4
