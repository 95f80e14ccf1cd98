"""The play minute by minute: energy, sleep, throttling, deferral, consolidation, and the bound of an integer program."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from green_ilp import SLOTS, least_brown_kwh, small_work
from green_works import SMALL, nodes_of, noon_sun, pods_of, work_of
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.cluster import preset
from armillary.errors import InputError
from armillary.scheduling.energy import Carbon
from armillary.scheduling.green import (
    GreedyGreen,
    GreenK8s,
    K8sDefault,
    K8sMost,
    Nodes,
    OracleSun,
    PackAndSleep,
    WaitAwhile,
    ablation,
    built_in,
    green_below,
    play,
    saved_per_hour,
)  # fmt: skip
from armillary.scheduling.green.problem.sunshine import CELL, SLOT_S
from armillary.scheduling.green.simulation.placing import balanced, least_allocated, most_allocated
from armillary.scheduling.green.simulation.play import with_battery
from armillary.scheduling.green.simulation.state import DONE, OFF

TECHNIQUES = (K8sDefault, K8sMost, PackAndSleep, WaitAwhile, GreedyGreen, GreenK8s, OracleSun)


@pytest.fixture(scope="module")
def drawn() -> Any:
    """A day of 400 pods on the twenty nodes."""
    return built_in(np.random.default_rng(3), Nodes.of(preset("k8s-20")), many=400, days=1, latitude=35.0, weather="broken")


def test_least_allocated_by_hand() -> None:
    assert least_allocated(4.0, 8.0, 2.0, 4.0) == 50  # 1 core and 2 GiB are requested already, the pod asks for as much
    assert most_allocated(4.0, 8.0, 2.0, 4.0) == 50
    assert balanced(4.0, 8.0, 2.0, 4.0) == 100
    assert balanced(4.0, 8.0, 4.0, 0.0) == 50


def test_the_power_of_one_pod_on_one_node() -> None:
    work = work_of(nodes_of(SMALL), pods_of({"duration_s": 600, "cpu": 2.0}), hours=1)
    played = play(work, K8sDefault().policy(work))
    assert played.power_w[:10].tolist() == [82.5] * 10  # 45 + 75·2/4
    assert played.power_w[10:].tolist() == [45.0] * 50
    asleep = play(work, PackAndSleep().policy(work))
    assert asleep.power_w[10:20].tolist() == [45.0] * 10
    assert asleep.power_w[20:].tolist() == [2.0] * 40


def test_a_sleeping_node_boots_for_a_pod() -> None:
    work = work_of(nodes_of(SMALL), pods_of({"submit_s": 1800.0, "duration_s": 600, "tier": 0}), hours=1)
    played = play(work, PackAndSleep().policy(work))
    assert played.power_w[29:33].tolist() == [2.0, 72.0, 63.75, 63.75]
    assert played.start_s[0] == 1860.0


def test_crowded_nodes_throttle_in_proportion_and_batch_pods_finish_later() -> None:
    pods = pods_of(*({"cpu": 2.0, "usage": 3.0, "duration_s": 1200.0, "tier": tier} for tier in (0, 2)))
    work = work_of(nodes_of(SMALL), pods, hours=1)
    played = play(work, K8sDefault().policy(work))
    assert played.state.end.tolist() == [20, 27]  # 4/6 of the wanted cores for 20 minutes, then all of them: 20·4/6 + 6.67
    assert played.metrics()["cpu_throttled"] == pytest.approx(20 * 2 / (20 * 6 + 7 * 3))


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_energy_balances_and_memory_is_never_oversubscribed(drawn: Any, technique: Any) -> None:
    stored = [replace(drawn, battery_kwh=5.0)] if technique is PackAndSleep else []
    for work in (drawn, *stored):
        played = play(work, technique().policy(work))
        assert np.abs(played.green_w + played.brown_w - played.power_w).max() < 1e-9
        assert (played.brown_w >= -1e-9).all()
        if not work.battery_kwh:
            assert (played.green_w <= work.sun.during + 1e-9).all()
        else:
            assert played.green_w.sum() <= work.sun.during.sum() + 1e-6
        assert played.state.memory_peak[0] <= 1 + 1e-9
        assert (played.state.phase == DONE).mean() > 0.99
        assert (played.start_s >= work.pods.submit_s - 1e-9).all()


def test_a_battery_by_hand() -> None:
    green = with_battery(np.array([10.0, 10.0, 10.0, 10.0]), np.array([30.0, 0.0, 0.0, 0.0]), 15.0, 0.9)
    assert green.tolist() == [10.0, 10.0, 5.0, 0.0]  # 18 are offered, 15 fit


def test_without_sun_greenk8s_is_its_own_packing(drawn: Any) -> None:
    dark = replace(drawn, sun=drawn.sun.scaled(0.0))
    played = play(dark, GreenK8s().policy(dark))
    assert played.metrics()["green_share"] == 0.0
    blind = play(dark, GreenK8s(w_green=0.0).policy(dark))
    assert np.array_equal(played.power_w, blind.power_w)


def test_a_pod_with_slack_waits_for_noon_and_one_without_starts_at_once() -> None:
    pods = pods_of(*({"submit_s": 7 * 3600.0, "slack_s": slack} for slack in (6 * 3600.0, 0.0)))
    # The morning's sun is taken by a service, so that noon is better.
    work = work_of(nodes_of(SMALL, SMALL), pods, hours=18, sun=lambda h: max(0.0, noon_sun(h) - 420))
    played = play(work, OracleSun().policy(work))
    assert played.start_s[0] >= 8 * 3600.0
    assert played.start_s[1] == 7 * 3600.0 + SLOT_S  # one boot later
    assert not played.missed.any()


def test_equal_seeds_give_equal_bits(drawn: Any) -> None:
    again = built_in(np.random.default_rng(3), Nodes.of(preset("k8s-20")), many=400, days=1, latitude=35.0, weather="broken")
    a, b = (play(work, GreenK8s().policy(work)) for work in (drawn, again))
    assert np.array_equal(a.power_w, b.power_w)
    assert np.array_equal(a.state.start, b.state.start)


def test_pods_are_packed_by_usage_once_their_class_is_known() -> None:
    first = [{"cpu": 2.0, "usage": 0.5, "duration_s": 7200.0, "tier": 0, "app": 0}]
    later = [{"submit_s": 5400.0, "cpu": 2.0, "usage": 0.5, "duration_s": 3600.0, "tier": 0, "app": 0} for _ in range(3)]
    work = work_of(nodes_of(SMALL, SMALL), pods_of(*first, *later), hours=3)
    packed = play(work, GreenK8s().policy(work))
    by_request = play(work, GreenK8s(oversubscribe=False).policy(work))
    assert len(set(packed.state.node.tolist())) == 1
    assert len(set(by_request.state.node.tolist())) == 2
    assert packed.energy_kwh < by_request.energy_kwh


def test_a_node_that_throttles_accepts_less() -> None:
    rows = [{"cpu": 1.0, "usage": 0.2, "duration_s": 3600.0, "tier": 0}] * 3
    wild = [{"submit_s": 1800.0, "cpu": 1.0, "usage": 3.0, "duration_s": 5400.0, "tier": 0, "app": 0}] * 2
    work = work_of(nodes_of(SMALL), pods_of(*rows, *wild), hours=3)
    played = play(work, GreenK8s().policy(work))
    assert played.state.kappa[0] < 0.95


def test_hardly_used_nodes_are_drained_and_sleep() -> None:
    rows = [{"cpu": 2.0, "usage": 1.9, "duration_s": 4 * 3600.0, "tier": 0}, {"cpu": 1.8, "usage": 1.8, "duration_s": 1800.0, "tier": 0},
            {"cpu": 1.0, "usage": 0.4, "duration_s": 3 * 3600.0, "tier": 2}]  # fmt: skip
    work = work_of(nodes_of(SMALL, SMALL), pods_of(*rows), hours=5)
    drained = play(work, GreenK8s().policy(work))
    stays = play(work, GreenK8s(consolidate=False).policy(work))
    assert drained.state.restarts.tolist() == [0, 0, 1]
    assert stays.state.restarts.sum() == 0
    assert drained.energy_kwh < stays.energy_kwh
    assert drained.state.phase.tolist() == [DONE] * 3


def test_the_last_node_stays_on_while_a_pod_is_due() -> None:
    work = work_of(nodes_of(SMALL), pods_of(*({"submit_s": 60.0 * k, "duration_s": 60.0} for k in range(0, 100, 9))), hours=3)
    played = play(work, GreenK8s(idle_off=0).policy(work))
    assert (played.state.phase == DONE).all()
    assert not played.missed.any()


def test_a_pod_larger_than_every_node_is_listed_and_the_rest_runs() -> None:
    work = work_of(nodes_of(SMALL), pods_of({"cpu": 8.0}, {"memory_gb": 20.0}, {}), hours=3)
    for technique in TECHNIQUES:
        played = play(work, technique().policy(work))
        assert played.unschedulable == ["pod-0", "pod-1"]
        assert played.missed.tolist() == [True, True, False]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_whatever_pods_come_none_is_lost(seed: Any) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        {"submit_s": float(rng.integers(0, 7200)), "duration_s": float(rng.integers(1, 4000)), "cpu": float(rng.uniform(0.05, 4)),
         "usage": float(rng.uniform(0, 5)), "memory_gb": float(rng.uniform(0, 16)), "tier": int(rng.integers(0, 4)),
         "app": int(rng.integers(0, 3)), "slack_s": float(rng.integers(0, 20000))}
        for _ in range(int(rng.integers(1, 30)))
    ]  # fmt: skip
    work = work_of(nodes_of(SMALL, (8.0, 32.0, 60.0, 200.0, 1.3, 2.0, 120.0, 100.0)), pods_of(*rows), hours=24, sun=noon_sun)
    for technique in (PackAndSleep, GreedyGreen, GreenK8s, OracleSun):
        played = play(work, technique().policy(work))
        x = played.state
        assert (x.phase == DONE).all()
        assert x.counts[0] == 0
        assert x.counts[1] == 0
        assert (x.pods == 0).all()
        assert (x.status == OFF).all()
        assert x.memory_peak[0] <= 1 + 1e-9
        assert (x.end > x.start).all()
        assert math.isclose(played.green_w.sum() + played.brown_w.sum(), played.power_w.sum())


def brown_by_cells(played: Any) -> float:
    """kWh from the grid where each quarter of an hour is one slot, as the program counts them."""
    power, sun = (series.reshape(SLOTS, CELL).mean(1) for series in (played.power_w, played.work.sun.during))
    return float(np.maximum(0.0, power - sun).sum()) * 900 / 3.6e6


def over_the_program(seeds: Iterable[int]) -> list[float]:
    """Brown energy over the least that the integer program finds."""
    ratios = []
    for seed in seeds:
        work = small_work(seed)
        bound = least_brown_kwh(work)
        played = play(work, OracleSun().policy(work))
        assert not played.missed.any()
        ratios.append(brown_by_cells(played) / bound)
        assert brown_by_cells(play(work, OracleSun(defer=False).policy(work))) > brown_by_cells(played)
    return ratios


def test_no_play_beats_the_integer_program() -> None:
    """Works that HiGHS solves within a second."""
    assert min(over_the_program((0, 2, 4, 5))) >= 0.995  # the program's gap


@pytest.mark.slow
def test_greenk8s_comes_near_the_integer_program() -> None:
    """Half of the works are within the goal of 15 %; it is missed where sun is scarce, and docs/green.md says so."""
    ratios = over_the_program(range(12))
    assert min(ratios) >= 0.995
    assert sum(ratio <= 1.15 for ratio in ratios) >= 5
    assert np.median(ratios) <= 1.25
    assert max(ratios) <= 1.8


def test_every_part_changes_something(drawn: Any) -> None:
    found = ablation(drawn)
    whole = found.pop("greenk8s")
    for name, played in found.items():
        assert not np.array_equal(played.power_w, whole.power_w), name


def test_a_clean_hour_of_the_grid_counts_as_green() -> None:
    work = work_of(nodes_of(SMALL), pods_of({"slack_s": 6 * 3600.0, "duration_s": 1800.0}), hours=12)
    grid = Carbon.hourly([500.0] * 4 + [80.0] * 2 + [500.0] * 60)
    clean = green_below(work, grid, 100.0)
    waits, now = play(clean, OracleSun().policy(clean)), play(clean, PackAndSleep().policy(clean))
    assert 4 * 3600 <= waits.start_s[0] < 6 * 3600
    assert now.start_s[0] == 0
    assert waits.metrics()["green_share"] > now.metrics()["green_share"]
    assert saved_per_hour(waits, now, 0.3) > 0
    assert saved_per_hour(now, now, 0.3) == 0


def test_bad_nodes_and_pods_are_refused_in_one_line() -> None:
    for change, said in (
        ({3: 40.0}, "peak of 40 W below the idle power"), ({2: -1.0}, "below 0"), ({4: 2.0}, "exponent"), ({5: 50.0}, "less when off"),
    ):  # fmt: skip
        row = list(SMALL)
        for i, value in change.items():
            row[i] = value
        with pytest.raises(InputError, match=said):
            nodes_of(tuple(row))
    with pytest.raises(InputError, match="runs for 0 s"):
        pods_of({"duration_s": 0.0})
    with pytest.raises(InputError, match="a tier"):
        pods_of({"tier": 4})
    pods = pods_of({})
    with pytest.raises(InputError, match="does not belong"):
        replace(pods, offsets=np.array([0, 5])).check()
    with pytest.raises(InputError, match="forecast of the shape"):
        play(work_of(nodes_of(SMALL), pods, hours=1), GreenK8s().rules(np.zeros((1, 1))))
