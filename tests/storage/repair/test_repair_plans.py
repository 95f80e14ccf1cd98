"""Plans are carried out on real bytes, over racks, for many blocks and under drift; the simulation is checked by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.arena import NotForThisCase
from armillary.storage import repair
from armillary.storage.repair.plans.unified import busiest, by_greedy, by_linear_program
from armillary.storage.repair.simulation.carrying_out import rebuild
from armillary.storage.repair.workload import built_in, free_bandwidth, place

SINGLE = (repair.Conventional(), repair.Ppr(), repair.Rp(), repair.Pivot(), repair.FullRepair(), repair.SwitchTree(), repair.Ran())
MANY = (*SINGLE, repair.RepairBoost(), repair.RepairBoost("ppr"))


def stripes(code: repair.ReedSolomon, count: int, length: int, seed: int = 0) -> np.ndarray:
    data = np.random.default_rng(seed).integers(0, 256, (count, code.k, length), np.uint8)
    return np.stack([np.concatenate([d, code.encode(d)]) for d in data])


def reader(placement: repair.Placement, blocks: np.ndarray) -> Callable[[int, int, int, int], bytes]:
    def read(node: int, stripe: int, a: int, b: int) -> bytes:
        (index,) = np.flatnonzero(placement.holder[stripe] == node)
        return blocks[stripe, index, a:b].tobytes()

    return read


def test_all_single_and_double_losses_of_six_four_come_back() -> None:
    """Every technique rebuilds every loss from the bytes of survivors alone."""
    code = repair.ReedSolomon(4, 2)
    placement = repair.Placement.make(code, [list(range(6))], nodes=[f"n{i}" for i in range(9)])
    blocks = stripes(code, 1, 3000)
    rng = np.random.default_rng(1)
    up, down = rng.uniform(10, 100, (2, 9))
    free = repair.Bandwidth.constant(up, down, [f"n{i}" for i in range(9)], rack=[0, 0, 0, 1, 1, 1, 2, 2, 2])
    for size in (1, 2):
        for lost in itertools.combinations(range(6), size):
            for planner in SINGLE:
                plan = repair.plan_repair(placement, [("0", i) for i in lost], free, technique=planner, block=3000, slice=64)
                assert not {node for _, _, helpers in plan.ranges for node in helpers} & set(lost)
                got = repair.execute(plan, reader(placement, blocks))
                back = {(0, lost[0]): got} if size == 1 else got
                assert back == {(0, i): blocks[0, i].tobytes() for i in lost}
                assert size == 1 or len({sub.destination for sub in plan}) == 2


@pytest.mark.parametrize("trials", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_losses_of_fourteen_ten_come_back(trials: int) -> None:
    """Losses of one to four blocks come back with both kinds of code, in racks with and without switches that add up."""
    rng = np.random.default_rng(2)
    for trial in range(trials):
        code = repair.ReedSolomon(10, 4, ("vandermonde", "cauchy")[trial % 2])
        placement = repair.Placement.make(code, rng.permutation(20)[None, :14], nodes=[str(i) for i in range(20)])
        able = rng.uniform(5, 50, 4) * (rng.random(4) < 0.7)
        free = repair.Bandwidth.constant(
            *rng.uniform(1, 10, (2, 20)),
            rack=np.arange(20) // 5,
            rack_up=rng.uniform(5, 50),
            aggregate=able,
            core_aggregate=rng.choice([0, 40]),
        )
        lost = np.sort(rng.choice(14, rng.integers(1, 3) if trial % 10 else 4, replace=False))
        planner = (
            (repair.Ran() if trial % 10 == 1 else repair.Ran(solver="greedy")) if trial % 2 else SINGLE[trial // 2 % (len(SINGLE) - 1)]
        )
        plan = repair.plan_repair(placement, [("0", int(i)) for i in lost], free, technique=planner, block=500, slice=16)
        blocks = stripes(code, 1, 500, trial)
        got = repair.execute(plan, reader(placement, blocks))
        back = {(0, int(lost[0])): got} if len(lost) == 1 else got
        assert back == {(0, int(i)): blocks[0, i].tobytes() for i in lost}


@pytest.mark.parametrize("planner", MANY, ids=lambda p: f"{p.name}{getattr(p, 'shape', '')}")
@pytest.mark.parametrize("failure", ["node", "two-nodes"])
def test_whole_nodes_come_back_and_no_pool_is_over_its_capacity(planner: object, failure: str) -> None:
    work = built_in(9, 6, "hotspot", failure, 3.0, 30, 1 << 20, 5000, np.random.default_rng(3))
    plan = planner.plan(work.problem)  # type: ignore[attr-defined]
    outcome = repair.carry_out(planner, plan, work.bandwidth)  # type: ignore[arg-type]
    assert rebuild(work.problem, outcome.pieces, 5000, 1)[0]
    used = outcome.pool_bytes[outcome.capacity_bytes > 0] / outcome.capacity_bytes[outcome.capacity_bytes > 0]
    assert used.max() <= 1 + 1e-9
    assert outcome.pool_bytes[:20].sum() >= 6 * work.problem.size.sum() * (1 - 1e-9)
    able = np.flatnonzero(np.any(work.problem.allowed, axis=0))
    assert set(plan.destination.tolist()) <= set(able.tolist())
    for sub in plan:
        assert sub.destination not in {node for node, _, _ in sub.helpers}
        assert len({node for node, _, _ in sub.helpers}) == 6


def test_wrong_arithmetic_is_noticed() -> None:
    work = built_in(6, 4, "uniform", "degraded-read", 1.0, 1, 1 << 20, 4096, np.random.default_rng(0))
    plan = repair.Ran().plan(work.problem)
    outcome = repair.carry_out(repair.Ran(), plan, work.bandwidth)
    assert rebuild(work.problem, outcome.pieces, 4096, 0)[0]
    assert not rebuild(work.problem, outcome.pieces[:-1], 4096, 0)[0]
    moved = tuple(piece._replace(start=piece.start + 256, stop=piece.stop + 256) for piece in outcome.pieces[:-1])
    assert not rebuild(work.problem, (*moved, outcome.pieces[-1]), 4096, 0)[0]
    index = work.problem.index.copy()
    index[0] = (index[0] + 1) % 6
    wrong = replace(work.problem, index=index)
    assert not rebuild(wrong, outcome.pieces, 4096, 0)[0]


@pytest.mark.parametrize("failure", ["node", "two-nodes"])
@pytest.mark.parametrize(("n", "k"), [(6, 4), (9, 6), (14, 10)])
@pytest.mark.parametrize("kind", ["uniform", "down-scarce", "hotspot"])
def test_lost_nodes_are_rebuilt_no_later_than_by_fixed_sets_of_helpers(failure: str, n: int, k: int, kind: str) -> None:
    for seed in range(2):
        work = built_in(n, k, kind, failure, 1.0, 60, 64 << 20, 1, np.random.default_rng(seed))
        ours, rival = (planner.plan(work.problem) for planner in (repair.Ran(), repair.SwitchTree()))
        assert repair.simulate(ours).seconds <= repair.simulate(rival).seconds * 1.001


@pytest.mark.parametrize("failure", ["degraded-read", "double", "node", "two-nodes"])
def test_a_plan_promises_what_the_simulation_takes(failure: str) -> None:
    for seed, technique in itertools.product((0, 3110976), (repair.Ran, repair.FullRepair, repair.SwitchTree, repair.Rp)):
        work = built_in(14, 10, "hotspot", failure, 1.0, 40, 64 << 20, 1, np.random.default_rng(seed))
        plan = technique().plan(work.problem)
        assert plan.seconds == pytest.approx(repair.carry_out(technique(), plan, work.bandwidth).seconds)
        if failure == "degraded-read":
            # What the ranges of one block take longer than the busiest link is start-up, a few slices of 1024.
            assert plan.seconds <= 1.05 * plan.least_s


def test_repairboost_declines_a_single_stripe() -> None:
    work = built_in(6, 4, "uniform", "degraded-read", 1.0, 1, 1 << 20, 4096, np.random.default_rng(0))
    with pytest.raises(NotForThisCase):
        repair.RepairBoost().plan(work.problem)


def test_simulated_seconds_by_hand() -> None:
    """Blocks have 100 bytes and slices have 1.

    In a star, 3 flows share a downlink of 30, which takes 10 s. A chain of 3 at 10 takes 10 s and two slices more. A switch has depth two and
    takes one slice more. PPR at 10 each takes two rounds of 10 s.
    """
    problem = repair.Problem.single([10, 10, 10, 0], [10, 10, 10, 30], 3, size=100, slice=1)
    assert repair.simulate(repair.Conventional().plan(problem)).seconds == pytest.approx(10)
    assert repair.simulate(repair.Rp().plan(problem)).seconds == pytest.approx(10.2)
    assert repair.simulate(repair.SwitchTree().plan(problem)).seconds == pytest.approx(10.1)
    assert repair.simulate(repair.Ppr().plan(problem)).seconds == pytest.approx(20)
    narrow = repair.Problem.single([10, 10, 10, 0], [10, 10, 10, 15], 3, size=100, slice=1)
    assert repair.simulate(repair.Conventional().plan(narrow)).seconds == pytest.approx(20)
    assert repair.simulate(repair.SwitchTree().plan(narrow)).seconds == pytest.approx(10.1)


def test_capacities_that_change_by_hand() -> None:
    """100 bytes flow at 10 bytes/s for 4 s and then at 20, so the other 60 bytes and the slice of start-up take 3.05 s more."""
    problem = repair.Problem.single([10, 10, 10, 0], [0, 0, 0, 100], 3, size=100, slice=1)
    fabric = problem.fabric
    up = np.array([[10.0, 10, 10, 0], [20, 20, 20, 0]])
    free = repair.Bandwidth.over_time(tuple("abcd"), np.array([0.0, 4.0]), up, np.tile(fabric.down, (2, 1)), fabric)
    plan = repair.SwitchTree().plan(problem)
    assert repair.simulate(plan, free).seconds == pytest.approx(4 + 61 / 20)
    stopped = repair.simulate(plan, free, stop=2.0)
    assert not stopped.finished
    assert stopped.done.tolist() == [pytest.approx(19)]  # one slice of start-up has passed too


def test_rack_links_and_switches_are_shared() -> None:
    """In two oversubscribed racks, the uplink carries the block once with sums in the switch, and once per helper without them."""
    fabric = repair.Fabric.make([10] * 5, [100] * 5, rack=[0, 0, 0, 0, 1], rack_up=10)
    problem = replace(repair.Problem.single([10] * 5, [100] * 5, 4, size=100, slice=1), fabric=fabric)
    assert repair.simulate(repair.SwitchTree().plan(problem)).seconds == pytest.approx(10.1)
    assert repair.simulate(repair.Conventional().plan(problem)).seconds == pytest.approx(40)
    weak = replace(problem, fabric=replace(fabric, aggregate=np.array([20.0, 20.0])))
    # Four streams of the block enter a switch that adds up 20 bytes/s.
    assert repair.simulate(repair.SwitchTree().plan(weak)).seconds == pytest.approx(101 / 5)


def test_where_switches_cannot_add_up_the_fastest_helper_does() -> None:
    up, down = [10, 10, 10, 10, 1], [1, 100, 1, 1, 10]
    fabric = repair.Fabric.make(up, down, rack=[0, 0, 0, 0, 1], rack_up=100, aggregate=0.0)
    problem = replace(repair.Problem.single(up, down, 3, size=1000, slice=1), fabric=fabric)
    plan = repair.Ran().plan(problem)
    for sub in plan:
        assert all(vertex < 5 for edge in sub.edges for vertex in edge)
        assert {parent for _, parent in sub.edges} <= {1, 4}
    # Helper 1 passes the whole block on at 10, however much it adds itself.
    assert plan.rate == pytest.approx(10)
    assert repair.simulate(plan).seconds <= 1.05 * 100
    assert repair.simulate(plan).seconds >= 100


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 3.0, 5.0]), st.sampled_from(["uniform", "down-scarce", "hotspot"]))
def test_ran_s_shares_are_kept_by_its_ranges_and_simulated_time_by_its_plan(seed: int, over: float, kind: str) -> None:
    """The simulation gives what the plan counts on, with racks, and with few and many blocks."""
    rng = np.random.default_rng(seed)
    failure = ("degraded-read", "double", "node")[seed % 3]
    work = built_in(14, 10, kind, failure, over, 12, 64 << 20, 1, rng)
    plan = repair.Ran().plan(work.problem)
    took = repair.simulate(plan, window=1000).seconds
    assert took >= plan.least_s * (1 - 5e-3)
    # One block takes the start-ups of its ranges on top. With many, links are shared fairly, which differs from the plan's schedule.
    assert took <= plan.least_s * (1.05 if failure == "degraded-read" else 1.15)


def test_paced_sub_repairs_take_as_long_as_free_ones() -> None:
    work = built_in(14, 10, "uniform", "degraded-read", 1.0, 1, 64 << 20, 1, np.random.default_rng(5))
    plan = repair.Ran().plan(work.problem)
    assert repair.simulate(plan, paced=True).seconds == pytest.approx(repair.simulate(plan, paced=False).seconds, rel=1e-3)


@pytest.mark.parametrize(("n", "k"), [(6, 4), (9, 6), (14, 10)])
@pytest.mark.parametrize("over", [1.0, 5.0])
@pytest.mark.parametrize("kind", ["uniform", "down-scarce", "hotspot"])
def test_the_greedy_comes_within_a_twentieth_of_the_linear_program(n: int, k: int, over: float, kind: str) -> None:
    work = built_in(n, k, kind, "node", over, 150, 64 << 20, 1, np.random.default_rng(6))
    exact = by_linear_program(work.problem)
    quick = by_greedy(work.problem, np.random.default_rng(0))
    assert quick.seconds <= 1.05 * exact.seconds
    assert np.allclose(quick.w.sum(axis=1), k)
    assert (quick.w <= 1).all()
    assert quick.seconds == pytest.approx(busiest(work.problem, quick.w, quick.destination))


def test_many_blocks_of_one_size_and_no_racks_against_a_plain_linear_program() -> None:
    """With uplinks only, SciPy gives the least T with sum_l w_li ≤ T·u_i, however the shares are laid out."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(8)
    code = repair.ReedSolomon(4, 2)
    placement = place(code, 12, rng, nodes=8)
    up = rng.uniform(1, 10, 8)
    free = repair.Bandwidth.constant(up, [1e9] * 8, [f"n{i}" for i in range(8)])
    problem = placement.problem("n0", free, block=1000, slice=1)
    rows = len(problem)
    upper = np.zeros((8, rows * 8 + 1))
    equal = np.zeros((rows, rows * 8 + 1))
    bounds = [(0.0, 0.0)] * (rows * 8) + [(0.0, None)]
    for row in range(rows):
        for node in problem.holder[row][problem.holder[row] >= 0]:
            upper[node, row * 8 + node] = 1000
            equal[row, row * 8 + node] = 1
            bounds[row * 8 + node] = (0.0, 1.0)
    upper[:, -1] = -up
    goal = np.append(np.zeros(rows * 8), 1.0)
    best = linprog(goal, A_ub=upper, b_ub=np.zeros(8), A_eq=equal, b_eq=[4] * rows, bounds=bounds).fun
    assert by_linear_program(problem).seconds == pytest.approx(best, rel=1e-6)


def test_two_lost_blocks_cost_two_transmissions_unless_switches_multiply() -> None:
    code = repair.ReedSolomon(2, 2)
    placement = repair.Placement.make(code, [[0, 1, 2, 3]], nodes=list("abcdef"))
    free = repair.Bandwidth.constant([10] * 6, [1000] * 6, list("abcdef"))
    twice = repair.plan_repair(placement, [("0", 0), ("0", 1)], free, block=1000, slice=1)
    once = repair.plan_repair(placement, [("0", 0), ("0", 1)], free, technique=repair.Ran(switch_multiplies=True), block=1000, slice=1)
    assert twice.least_s == pytest.approx(200)
    assert once.least_s == pytest.approx(100)
    assert repair.simulate(twice).seconds == pytest.approx(200, rel=0.02)
    assert repair.simulate(once).seconds == pytest.approx(100, rel=0.02)
    blocks = stripes(code, 1, 1000)
    assert repair.execute(once, reader(placement, blocks)) == {(0, i): blocks[0, i].tobytes() for i in (0, 1)}


def test_replanning_gains_under_drift_and_rebuilds_the_same_bytes() -> None:
    gains = []
    for seed in range(6):
        work = built_in(9, 6, "drifting", ("node", "degraded-read")[seed % 2], 1.0, 60, 64 << 20, 3001, np.random.default_rng(seed))
        standing, planning = repair.Ran(replan_s=None), repair.Ran(replan_s=1.0)
        plan = standing.plan(work.problem)
        still, moving = repair.carry_out(standing, plan, work.bandwidth), repair.carry_out(planning, plan, work.bandwidth)
        assert rebuild(work.problem, moving.pieces, 3001, seed)[0]
        total = sum(piece.stop - piece.start for piece in moving.pieces)
        assert total == work.problem.size.sum()
        for row in range(len(work.problem)):
            own = sorted((p.start, p.stop) for p in moving.pieces if p.row == row)
            assert all(a[1] == b[0] for a, b in itertools.pairwise(own))
            assert len({int(p.plan.destination[p.sub]) for p in moving.pieces if p.row == row}) == 1
        if moving.plans > 1:
            gains.append(still.seconds / moving.seconds)
    assert len(gains) >= 3
    assert np.mean(gains) > 1.0


def test_a_plan_leaves_as_json_that_says_all() -> None:
    code = repair.ReedSolomon(2, 1)
    placement = repair.Placement.make(code, [[0, 1, 2]], nodes=["a", "b", "c", "d"])
    free = repair.Bandwidth.constant([10, 10, 10, 10], [10] * 4, list("abcd"))
    plan = repair.plan_repair(placement, "a", free, block=100, slice=1)
    found = json.loads(plan.to_json())
    assert (found["technique"], found["k"], found["m"], found["bytes_per_s"]) == ("ran", 2, 1, pytest.approx(10))
    (sub,) = found["sub_repairs"]
    assert (sub["stripe"], sub["lost"], sub["range"], sub["to"]) == ("0", 0, [0, 100], "d")
    coefficients = code.coefficients(0, [1, 2]).tolist()
    assert sub["helpers"] == [
        {"helper": "b", "index": 1, "coefficient": coefficients[0], "via": "rack 0"},
        {"helper": "c", "index": 2, "coefficient": coefficients[1], "via": "rack 0"},
    ]
    assert sub["sums"] == [{"at": "rack 0", "via": "d"}]


def test_headroom_says_which_loss_would_take_longest() -> None:
    code = repair.ReedSolomon(2, 2)
    rng = np.random.default_rng(1)
    placement = place(code, 40, rng, nodes=8)
    names = [f"n{i}" for i in range(8)]
    free = repair.Bandwidth.constant(rng.uniform(5e6, 50e6, 8), rng.uniform(5e6, 50e6, 8), names)
    table = repair.headroom(placement, free, block=1 << 20)
    assert set(table["node"]) == set(names)
    assert table["repair_s"].is_sorted(descending=True)
    for node, blocks, seconds in table.select("node", "blocks", "repair_s").iter_rows():
        assert blocks == (placement.holder == int(node[1:])).sum()
        assert seconds == pytest.approx(repair.plan_repair(placement, node, free, block=1 << 20).seconds, rel=1e-6)


def test_built_in_bandwidths_are_as_described() -> None:
    rng = np.random.default_rng(0)
    scarce = free_bandwidth("down-scarce", rng, 5)
    assert scarce.down.max() <= 300e6 / 8
    assert scarce.up.max() > 500e6 / 8
    assert scarce.rack_up.tolist() == [5 * 125e6 / 5] * 4
    hot = free_bandwidth("hotspot", rng)
    assert (hot.up < 100e6 / 8).sum() >= 1
    drift = free_bandwidth("drifting", rng)
    assert drift.times[:3].tolist() == [0, 5, 10]
    assert not np.array_equal(drift.up[0], drift.up[1])
    assert np.bincount(drift.rack).tolist() == [5, 5, 5, 5]


def test_a_narrow_rack_uplink_limits_every_sum_that_leaves_the_rack() -> None:
    """Rack 0 sends one stream of the block at 5, however fast its helpers are."""
    fabric = repair.Fabric.make([10] * 5, [100] * 5, rack=[0, 0, 0, 0, 1], rack_up=5)
    problem = replace(repair.Problem.single([10] * 5, [100] * 5, 3, size=1000, slice=1), fabric=fabric)
    for planner in (repair.Ran(), repair.Ran(solver="greedy"), repair.Ran(solver="linear-program")):
        plan = planner.plan(problem)
        assert plan.rate == pytest.approx(5)
        assert repair.simulate(plan).seconds == pytest.approx(200, rel=0.01)
