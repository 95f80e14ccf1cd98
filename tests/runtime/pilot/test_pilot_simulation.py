"""The simulated pilot: exact cases by hand, rates, partitions, no over-use whatever the tasks, and the formula."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.runtime.pilot import Plan, Runtime, Work, choose_plan, predict, simulate
from armillary.runtime.pilot.simulation.nodes import GONE, find, find_several, nodes_of, take, turn
from armillary.runtime.pilot.simulation.plan import bounds, dragon, flux, partitions, pools, srun, srun_s
from armillary.runtime.pilot.simulation.predict import candidates, hybrid_plan, pool_plan
from armillary.runtime.pilot.workload import BARRIER, EXECUTABLE, FUNCTION, Tasks, campaign, dummy, mixed, null

FREE = Plan((Runtime("free", 0.0, 0.0),), agent_s=0.0)


def most_at_once(started: np.ndarray, ended: np.ndarray, amount: np.ndarray) -> float:
    """The most that is held at an instant; what ends at an instant is free then."""
    times = np.concatenate([started, ended])
    change = np.concatenate([amount, -amount])
    order = np.lexsort((change, times))
    return float(np.cumsum(change[order]).max(initial=0.0))


def test_a_ceiling_of_112_on_224_cores_doubles_the_makespan() -> None:
    work = dummy(4, 180.0)
    assert work.tasks == 896
    limited = simulate(work, Plan((srun(4),)).without_overheads())
    assert (limited.makespan, limited.utilization) == (1440.0, 0.5)
    free = simulate(work, Plan((srun(4, ceiling=0),)).without_overheads())
    assert (free.makespan, free.utilization) == (720.0, 1.0)


def test_the_busiest_second_has_as_many_starts_as_the_launcher_makes() -> None:
    one = replace(FREE, runtimes=(Runtime("srun", srun_s(1), srun_s(1)),))
    alone = simulate(null(1, 2000), one).rate_peak
    behind = simulate(null(1, 2000), replace(one, agent_s=1 / 1600)).rate_peak
    assert abs(alone - 152) <= 1
    assert behind == alone
    three = Plan((replace(flux(3, 3), start_s=0.0),))
    assert abs(simulate(null(3, 4000), three).rate_peak - 930) <= 1
    assert abs(simulate(null(3, 4000), replace(three, agent_s=1 / 500)).rate_peak - 500) <= 1


def test_a_chain_a_fork_and_a_late_arrival_by_hand() -> None:
    made = Tasks()
    first = made.add(EXECUTABLE, [2.0])
    forks = made.add(EXECUTABLE, [3.0] * 3)
    made.wait(forks, np.full(3, first[0]))
    last = made.add(FUNCTION, [1.0])
    gate = made.barrier(forks)
    made.wait(last, [gate])
    made.add(EXECUTABLE, [1.0], arrives=20.0)
    played = simulate(made.work(1, 2, 0), FREE)
    assert played.started[:5].tolist() == [0.0, 2.0, 2.0, 5.0, 8.0]
    assert (played.started[-1], played.makespan) == (20.0, 21.0)
    assert played.real.sum() == 6


def test_a_wide_task_is_not_starved_and_younger_ones_pass_it_elsewhere() -> None:
    made = Tasks()
    made.add(EXECUTABLE, [10.0, 10.0, 10.0], cores=3)
    made.add(EXECUTABLE, [5.0], width=2, cores=4)
    made.add(EXECUTABLE, np.full(200, 3.0))
    work = made.work(3, 4, 0)
    played = simulate(work, FREE)
    assert played.started[3] == 10.0, "the two nodes that lack least are kept for it"
    assert played.started[4] == 0.0, "younger tasks pass it where it has no reservation"
    rigid = simulate(work, replace(FREE, backfill=False))
    assert rigid.started[4] >= played.started[3]


@st.composite
def ensembles(draw: st.DrawFn) -> tuple[Work, Plan]:
    """Up to 40 tasks of up to three nodes on five nodes, some after others, and a pilot with ceilings or partitions."""
    made = Tasks()
    n = draw(st.integers(1, 40))
    for i in range(n):
        function = draw(st.booleans())
        made.add(
            FUNCTION if function else EXECUTABLE, [draw(st.sampled_from([0.0, 0.5, 1.0, 7.0]))], width=1 if function else draw(st.integers(1, 2)),
            cores=draw(st.integers(1, 4)), gpus=draw(st.integers(0, 2)), arrives=draw(st.sampled_from([0.0, 0.0, 2.5])),
        )  # fmt: skip
        if i and draw(st.booleans()):
            made.wait([i], [draw(st.integers(0, i - 1))])
    k = draw(st.integers(1, 2))
    launch = draw(st.sampled_from([0.0, 0.01, 0.3]))
    a = Runtime("a", launch, launch, 0.01, instances=k, start_s=draw(st.sampled_from([0.0, 3.0])), ceiling=draw(st.sampled_from([0, 1, 3])))
    b = Runtime("b", function_s=0.02, per_node=True, start_s=1.0)
    return made.work(5, 4, 2), Plan((a, b), route=draw(st.sampled_from([(0, 0), (0, 1)])), agent_s=0.001)


@given(ensembles())
@settings(max_examples=120)
def test_nothing_is_overused_and_nothing_feasible_starves(given_: tuple[Work, Plan]) -> None:
    work, plan = given_
    played = simulate(work, plan)
    assert np.isfinite(played.ended).all()
    assert (played.ready <= played.placed).all()
    assert (played.placed <= played.started).all()
    for node in range(work.nodes):
        mine = np.array([node in played.nodes[played.place[i] : played.place[i + 1]] for i in range(len(work.kind))])
        for need, limit in ((work.cores, work.node_cores), (work.gpus, work.node_gpus)):
            assert most_at_once(played.placed[mine], played.ended[mine], need[mine]) <= limit
    for i in range(len(work.kind)):
        nodes = played.nodes[played.place[i] : played.place[i + 1]].tolist()
        assert len(set(nodes)) == work.width[i]
        for follower in work.after[work.first[i] : work.first[i + 1]]:
            assert played.started[follower] >= played.ended[i]
    for kind in (0, 1):
        runtime = plan.runtimes[plan.route[kind]]
        both = work.kind <= 1 if plan.route[0] == plan.route[1] else work.kind == kind
        if runtime.ceiling:
            assert most_at_once(played.started[both], played.ended[both], np.ones(int(both.sum()))) <= runtime.ceiling
        if not runtime.per_node:
            edges = bounds(work.nodes, runtime.parts(work.nodes))
            for i in np.flatnonzero(work.kind == kind):
                nodes = played.nodes[played.place[i] : played.place[i + 1]]
                assert len(set(np.searchsorted(edges, nodes, side="right"))) == 1, "a task stays in one partition"


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=30), st.integers(1, 7), st.data())
def test_the_tournament_finds_what_a_scan_finds(changes: list[tuple[int, int, int]], count: int, data: st.DataObject) -> None:
    pool = nodes_of(count, 8, 4)
    for node, cores, gpus in changes:
        if node < count and pool.cores[node] >= cores and pool.gpus[node] >= gpus:
            take(pool, node, cores, gpus)
    gone = data.draw(st.integers(0, count - 1))
    turn(pool, gone, GONE)
    for cores in range(9):
        for gpus in (0, 3):
            low = data.draw(st.integers(0, count - 1))
            high = data.draw(st.integers(low, count))
            fits = [i for i in range(low, high) if pool.cores[i] >= cores and pool.gpus[i] >= gpus and i != gone]
            assert find(pool, low, high, cores, gpus) == (fits[0] if fits else -1)
            spot = np.empty(count, np.int64)
            assert find_several(pool, low, high, 2, cores, gpus, spot) == (len(fits) >= 2)
            if len(fits) >= 2:
                assert spot[:2].tolist() == fits[:2]


def test_partitions_are_contiguous_and_almost_equal() -> None:
    assert bounds(10, 3).tolist() == [0, 3, 6, 10]
    assert [partitions(n) for n in (1, 64, 128, 1024, 9408)] == [1, 1, 2, 16, 16]


def test_a_task_wider_than_every_partition_is_refused() -> None:
    made = Tasks()
    made.add(EXECUTABLE, [1.0], width=3)
    with pytest.raises(InputError, match="every partition of flux has 2"):
        simulate(made.work(4, 8, 0), Plan((flux(4, 2),)))
    with pytest.raises(InputError, match="needs 3 nodes, and the allocation has 2"):
        simulate(made.work(2, 8, 0), FREE)
    made.add(EXECUTABLE, [1.0], gpus=1)
    with pytest.raises(InputError, match="needs 1 GPUs"):
        simulate(made.work(4, 8, 0), FREE)


def test_ten_thousand_tasks_that_come_before_any_runtime_is_up_start_in_order() -> None:
    played = simulate(null(4, 10_000), Plan((flux(4, 2),)))
    assert played.started.min() > 21.0
    # Two launchers: within a partition the order of submission stays.
    part = played.nodes // 2
    for k in (0, 1):
        assert (np.diff(played.started[part == k]) > 0).all()
    single = simulate(null(4, 10_000), Plan((flux(4),)))
    assert (np.diff(single.started) > 0).all()


def test_the_pools_own_srun_is_one_of_the_ceiling() -> None:
    assert pool_plan(4).runtimes[0].ceiling == 111
    assert not math.isfinite(pool_plan(4).runtimes[0].function_s)
    assert pools(4).parts(4) == 4


def test_lognormal_launches_follow_the_seed_and_measured_ones_are_drawn_from_what_was_measured() -> None:
    plan = replace(Plan((Runtime("x", 0.01, 0.01),)), cv=0.2)
    runs = [simulate(null(1, 500), plan, np.random.default_rng(seed)).makespan for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    two = replace(plan, cv=0.0, measured=(0.01, 0.03), runtimes=(Runtime("x", 0.02, 0.02),))
    gaps = np.diff(simulate(null(1, 500), two, np.random.default_rng(1)).started)
    assert set(np.round(gaps, 6)) == {0.01, 0.03}


def test_a_campaign_has_the_tasks_of_its_stages_in_their_order() -> None:
    work = campaign(64, np.random.default_rng(1), 0.1)
    assert work.tasks == 24 * (400 + 1 + 51 + 96 + 24 + 16)
    played = simulate(work, hybrid_plan(64, 1))
    rows = {row["stage"]: row for row in played.stages()}
    assert rows["training"]["first_start_s"] > 0
    for i in np.flatnonzero(work.kind != BARRIER):
        for p in range(work.first[i], work.first[i + 1]):
            assert work.kind[work.after[p]] == BARRIER


@pytest.mark.slow
def test_a_campaign_has_about_111_thousand_tasks_and_a_million_take_less_than_a_minute() -> None:
    import time

    assert campaign(1024, np.random.default_rng(1)).tasks == 111_576
    work = null(1024, 1_000_000)
    began = time.process_time()
    played = simulate(work, Plan((flux(1024, 16),)))
    assert time.process_time() - began < 60
    assert played.real.sum() == 1_000_000


@pytest.mark.slow
def test_the_formula_is_exact_for_equal_tasks_and_chooses_what_the_simulation_finds_best() -> None:
    for work, plan in ((dummy(4), Plan((srun(4),)).without_overheads()), (dummy(4), Plan((srun(4, 0),)).without_overheads())):
        assert predict(work, plan).makespan == pytest.approx(simulate(work, plan).makespan)
    for work in (mixed(4), mixed(16), dummy(64), null(256)):
        chosen = choose_plan(work)
        best = min(simulate(work, plan).makespan for plan in candidates(work).values())
        assert simulate(work, chosen.plan).makespan <= 1.05 * best, chosen.name


def test_a_chain_and_a_gpu_decide_the_formula_where_they_are_slowest() -> None:
    made = Tasks()
    tasks = made.add(EXECUTABLE, [10.0] * 5)
    made.wait(tasks[1:], tasks[:-1])
    found = predict(made.work(4, 8, 0), FREE)
    assert (found.slowest, found.makespan) == ("chain", 50.0)
    made = Tasks()
    made.add(EXECUTABLE, [10.0] * 6, gpus=1)
    assert predict(made.work(1, 8, 1), FREE).slowest == "GPUs"
    assert simulate(made.work(1, 8, 1), FREE).makespan == 60.0


def test_tasks_of_an_hour_differ_by_less_than_a_percent_and_auto_says_so() -> None:
    made = Tasks()
    made.add(EXECUTABLE, np.full(112, 3600.0))
    work = made.work(1)
    spans = [simulate(work, plan).makespan for plan in candidates(work).values()]
    assert max(spans) / min(spans) < 1.01
    assert "No pilot differs by more than 1 %" in choose_plan(work).said()
    assert "% less than" in choose_plan(dummy(4)).said()


def test_functions_go_to_dragon_and_wait_for_nobody_elses_start() -> None:
    played = simulate(mixed(4, 10.0), hybrid_plan(4, 1))
    functions = played.work.kind == FUNCTION
    assert played.started[functions].min() < 10
    assert played.started[~functions].min() > 20
    assert dragon(4).start_s == 9.0
