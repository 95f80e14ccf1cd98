"""Clocks in simulated time: closed forms on two clocks, what trees and floods are known to do, scaling, relabelling, bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from armillary.network.clocks import (
    Average,
    ClockNetwork,
    ClockWork,
    Free,
    GcsOneWay,
    GcsTwoWay,
    GradientClocks,
    MaxFlood,
    Oscillators,
    Tree,
    TreeFrequency,
    oscillators,
    play,
    settled,
    shaped,
)
from armillary.network.clocks.gcs_two_way import Gradient
from armillary.network.clocks.simulation.discipline import Discipline

ALL = (GcsTwoWay(), GcsOneWay(), Tree(), TreeFrequency(), Average(), MaxFlood(), Free())


class _Exact(GcsTwoWay):
    """Two-way synchronisation with a κ of 100 ns and no error to allow for."""

    def start(self, work: ClockWork) -> Discipline:
        links = work.network.links
        return Gradient(np.zeros(links), np.full(links, 1e-7), self.mu, work.network.nodes, both_ways=True)


def test_two_clocks_reach_two_kappa_and_never_more() -> None:
    work = ClockWork(
        shaped("line", 2),
        Oscillators(1e-5),
        grain=0.0,
        turnaround=0.0,
        rates="end",
        delays="random",
        initial_s=0.0,
        settle_s=0.05,
        judged_s=0.2,
    )
    found = play(work, _Exact()).local_skew
    assert 2e-7 <= found <= 2e-7 + 1.1e-4 * work.period


def test_free_clocks_drift_as_their_frequencies_say() -> None:
    work = ClockWork(shaped("line", 2), Oscillators(1e-5), rates="end", initial_s=0.0, settle_s=0.0, judged_s=1.0)
    assert play(work, Free()).local_skew == pytest.approx(1e-5, rel=1e-9)


def test_on_a_ring_the_tree_leaves_all_errors_to_one_pair() -> None:
    n, lean = 64, 5e-9
    work = ClockWork(shaped("ring", n).with_links(asymmetry=2 * lean), Oscillators(1e-9), grain=0.0, turnaround=0.0, rates="end", settle_s=0.2,
                     judged_s=0.1)  # fmt: skip
    found = play(work, Tree())
    assert found.local_skew == pytest.approx(n * lean, rel=0.2)
    worst = int(found.links.argmax())
    assert abs(int(work.network.levels[work.network.a[worst]]) - n // 2) <= 1


def test_a_reveal_runs_through_a_flood_and_not_through_gradients() -> None:
    def skew(n: int, technique: Any) -> float:
        work = ClockWork(shaped("line", n), Oscillators(1e-5), rates="end", delays="reveal", settle_s=4.0, judged_s=0.2)
        found = play(work, technique)
        limits = technique.bounds(work)
        assert limits is None or (found.links <= limits.local_skew).all()
        return found.local_skew

    flood = [skew(n, MaxFlood()) for n in (8, 16, 32)]
    assert flood[1] / flood[0] == pytest.approx(15 / 7, rel=0.35)
    assert flood[2] / flood[1] == pytest.approx(31 / 15, rel=0.35)
    assert skew(32, GcsTwoWay()) < 0.1 * flood[2]


@pytest.mark.parametrize("technique", ALL, ids=lambda t: type(t).__name__)
def test_scaling_all_times_scales_all_skews(technique: Any) -> None:
    network = shaped("ring", 12).with_links(asymmetry=2e-8, jitter=1e-9)
    work = ClockWork(network, Oscillators(1e-5), settle_s=0.05, judged_s=0.05)
    ten = replace(
        work, network=network.with_links(delay=10 * network.delay, asymmetry=2e-7, jitter=1e-8), period=1e-3, grain=1e-8, turnaround=1e-5,
        initial_s=1e-5, settle_s=0.5, judged_s=0.5,
    )  # fmt: skip
    one, more = play(work, technique), play(ten, technique)
    assert more.local_skew == pytest.approx(10 * one.local_skew, rel=1e-6)
    assert more.global_skew == pytest.approx(10 * one.global_skew, rel=1e-6)


def test_relabelling_clocks_permutes_what_is_seen() -> None:
    network = shaped("grid", 16).with_links(asymmetry=1e-8)
    order = np.concatenate([[0], 1 + np.random.default_rng(1).permutation(15)])
    turned = ClockNetwork.of(np.stack([order[network.a], order[network.b]], 1), 16, asymmetry=1e-8)
    # Without random numbers: no jitter, no grain, equal starting times, all asymmetries along the links.
    first, second = (
        play(ClockWork(net, rates="slope", grain=0.0, turnaround=0.0, initial_s=0.0, settle_s=0.1, judged_s=0.1), GcsTwoWay())
        for net in (network, turned)
    )
    assert second.links == pytest.approx(first.links, abs=1e-15)
    assert second.clocks[order] == pytest.approx(first.clocks, abs=1e-15)


def test_one_kappa_for_equal_links_is_the_textbooks() -> None:
    work = settled(ClockWork(shaped("ring", 16).with_links(asymmetry=1e-8)))
    assert play(work, GcsTwoWay()).links.tolist() == play(work, GcsTwoWay(per_link=False)).links.tolist()


@pytest.mark.parametrize("rates", ["halves", "slope", "end", "random"])
@pytest.mark.parametrize("delays", ["random", "bias", "reveal"])
def test_no_adversary_breaks_the_bounds(rates: str, delays: str) -> None:
    network = shaped("geometric", 24, np.random.default_rng(5))
    network = network.with_links(asymmetry=0.02 * network.delay, jitter=0.002 * network.delay)
    work = settled(ClockWork(network, oscillators("tcxo", rho=1e-5), rates=rates, delays=delays, judged_s=0.2))
    for technique in (GcsTwoWay(), GcsOneWay()):
        found, limits = play(work, technique), technique.bounds(work)
        assert (found.links <= limits.local_skew).all()
        assert found.global_skew <= limits.global_skew


def test_a_slope_lets_every_link_grow_to_nearly_two_kappa() -> None:
    work = settled(ClockWork(shaped("line", 17).with_links(asymmetry=1e-8), grain=0.0, turnaround=0.0, rates="slope"))
    limits = GcsTwoWay().bounds(work)
    assert 1.2 < play(work, GcsTwoWay()).global_skew / limits.diameter < 2.1


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not() -> None:
    work = ClockWork(shaped("ring", 8).with_links(asymmetry=1e-8, jitter=1e-9), settle_s=0.02, judged_s=0.02, seed=7)
    first, second, other = (play(one, GcsTwoWay()).links.tolist() for one in (work, work, replace(work, seed=8)))
    assert first == second != other


def test_noise_stays_in_the_band() -> None:
    work = ClockWork(shaped("line", 2), oscillators("xo", walk=1e-4, nu=1.0), rates="random", initial_s=0.0, settle_s=0.0, judged_s=2.0)
    found = play(work, Free())
    assert found.clocks.min() > 0
    assert found.clocks.max() <= 1e-4 * 2.0
    assert found.local_skew > 0


def test_random_walks_have_the_allan_deviation_of_their_kind() -> None:
    """White frequency noise: σ(τ) = σ(1 s)/√τ, beside allantools."""
    allantools = pytest.importorskip("allantools")
    sigma, period = 1e-7, 1e-2
    still = 5e-5
    clocks = GradientClocks(shaped("line", 2), 1e-4, 1e-3, period, rates=np.full(2, still))
    clocks.work = replace(clocks.work, oscillators=replace(clocks.work.oscillators, white=sigma, nu=1.0))
    from armillary.network.clocks.simulation.play import world_of
    from armillary.network.clocks.simulation.world import Seen

    world = world_of(clocks.work)
    course = []
    discipline = Free().start(clocks.work)
    for _ in range(20_000):
        discipline.advance(world, Seen(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros((0, 1)), 1), 0, 1)
        course.append(world.rate[0])
    taus, deviation, *_ = allantools.oadev(np.array(course[1:]), rate=1 / period, data_type="freq", taus=[0.1, 1.0, 10.0])
    assert deviation * np.sqrt(taus) == pytest.approx(sigma, rel=0.25)


def test_parts_of_the_mechanism_do_what_they_are_for() -> None:
    """Wrong data sheets and a clock that leaves its band cost, but do not tear neighbours apart."""
    base = settled(ClockWork(shaped("ring", 32).with_links(asymmetry=1e-8, jitter=2e-9)))
    usual, tree = play(base, GcsTwoWay()).local_skew, play(base, Tree()).local_skew
    assert usual < tree
    assert play(base, GcsTwoWay(sparse=10)).local_skew > usual
    assert play(base, GcsTwoWay(c=5.0)).local_skew > usual
    assert play(replace(base, declared=1 / 3), GcsTwoWay()).local_skew < 2 * tree
    assert play(replace(base, runaway=True), GcsTwoWay()).local_skew < 2 * tree


def test_gradient_clocks_go_on_from_where_they_were() -> None:
    clocks = GradientClocks(shaped("ring", 16), rho=1e-5, mu=1e-4, period=1e-4)
    clocks.run(0.5)
    limits = clocks.bounds()
    assert 0 < clocks.local_skew <= limits.local_skew.max()
    assert clocks.global_skew <= limits.global_skew
    assert clocks.seconds == pytest.approx(0.5)
    assert clocks.error_budget().total.min() > 0


def test_a_joining_link_starts_at_its_skew_and_the_others_keep_their_bounds() -> None:
    clocks = GradientClocks(shaped("line", 32).with_links(asymmetry=1e-8), rho=1e-5, mu=1e-4, period=1e-4, rates=np.linspace(0, 1e-5, 32))
    clocks.run(1.0)
    apart = abs(float(clocks.clocks[0] - clocks.clocks[31]))
    before = clocks.bounds().local_skew.copy()
    clocks.join(0, 31, asymmetry=1e-8)
    assert clocks.kappa[-1] >= apart > 5 * clocks.kappa[0]
    clocks.run(0.05)
    assert (clocks.skews[:-1] <= before).all()
    clocks.run(3.0)
    clocks.run(0.2)
    assert clocks.kappa[-1] == pytest.approx(clocks.kappa[0])
    assert clocks.skews[-1] <= clocks.bounds().local_skew[-1]


def test_a_new_clock_joins() -> None:
    clocks = GradientClocks(shaped("ring", 8), period=1e-4)
    clocks.run(0.05)
    clocks.join(3, 8, rate=5e-6)
    clocks.run(0.1)
    assert clocks.network.nodes == 9
    assert len(clocks.clocks) == 9
    assert clocks.skews[-1] <= clocks.bounds().local_skew[-1]
