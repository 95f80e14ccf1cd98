"""What each policy decides: by hand, against plain decisions, and against bounds that no timer can break."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keepalive_reference import EDGES, KNOWN, MENU, cheapest, known_gaps, masses, prices, regular, reuse_within, work_of

from armillary.catalogue import arena
from armillary.errors import InputError
from armillary.scheduling.energy import JOULES_PER_KWH, Carbon, idle_watts
from armillary.scheduling.faas import Invocations, drawn, population, shadow_gaps, shuffled
from armillary.scheduling.faas import play as play_fixed
from armillary.scheduling.keepalive import (
    BreakEven,
    CarbonMin,
    Counted,
    Histogram,
    KeepAliveWork,
    Knowledge,
    LaceRl,
    LatencyMin,
    NoKeepAlive,
    Oracle,
    Static60,
    Static600,
    Swarm,
    play,
)  # fmt: skip
from armillary.scheduling.keepalive.learning.replay import decisions
from armillary.scheduling.keepalive.simulation import reuse
from armillary.scheduling.keepalive.simulation.decisions import best_allowed
from armillary.scheduling.keepalive.simulation.scores import hypervolume, joint_share, pareto_gap
from armillary.scheduling.keepalive.workload import Stream, built_in

WEIGHING = (BreakEven(), Swarm(), LaceRl())
TIMERS = (Static60(), Static600(), NoKeepAlive(), LatencyMin(), CarbonMin(), LaceRl(limit_waits=False), *WEIGHING)


def counted(work: KeepAliveWork, technique: Any, lam: float | None = None) -> Counted:
    """What a technique comes to on some work."""
    lam = work.lam if lam is None else lam
    return Counted.of(work, play(work, technique.policy(work.at(lam)), lam))


def keeps(work: KeepAliveWork, technique: Any) -> np.ndarray:
    """The keep-alive after each invocation."""
    assert isinstance(work.trace, Invocations)
    found = np.zeros(len(work.trace))
    play(work, technique.policy(work), work.lam, found)
    return found


@pytest.fixture(scope="module")
def some_day() -> KeepAliveWork:
    """A small drawn day on a flat grid, with the knowledge of another."""
    rng = np.random.default_rng(7)
    flat = Carbon.flat(450.0)
    known = Knowledge.of(drawn(rng, population(rng, 60), most=6000), flat)
    return KeepAliveWork(drawn(rng, population(rng, 60), most=6000), flat, 0.5, known)


# The histogram of reuse


@given(gaps=st.lists(st.floats(0.0, 5000.0), max_size=12))
def test_reuse_is_a_decayed_histogram_with_a_prior(gaps: list[float]) -> None:
    counts, found = np.zeros(26), np.zeros(8)
    for gap in gaps:
        reuse.observe(counts, reuse.EDGES, gap)
    reuse.reuse_into(counts, KNOWN.prior, reuse.PLACES, reuse.SHARES, found)
    shares = masses(gaps, KNOWN.prior)
    clear = all(abs(gap - edge) > 1e-4 for gap in gaps for edge in EDGES[1:])  # The edges are rounded to a millionth.
    if clear:
        assert found == pytest.approx([reuse_within(shares, a) for a in MENU[1:]], abs=1e-4)


@given(gaps=st.lists(st.floats(0.0, 2000.0), max_size=10), late=st.floats(0.0, 10.0), dear=st.floats(1e-4, 1.0))
def test_the_cheapest_edge_has_the_least_expected_cost_of_all_edges(gaps: list[float], late: float, dear: float) -> None:
    counts = np.zeros(26)
    for gap in gaps:
        reuse.observe(counts, reuse.EDGES, gap)
    arguments = (counts, KNOWN.prior, reuse.EDGES, reuse.MEANS, late, dear)
    found = reuse.cheapest_edge(*arguments)
    costs = [reuse.expected_cost(*arguments, edge) for edge in reuse.EDGES.tolist()]
    assert reuse.expected_cost(*arguments, found) == pytest.approx(min(costs), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("misfit", [False, True])
def test_promised_reuse_is_delivered_on_fitting_and_on_shuffled_work(misfit: bool) -> None:
    rng = np.random.default_rng(5)
    flat = Carbon.flat(450.0)
    known = Knowledge.of(drawn(rng, population(rng, 200), most=40_000), flat)
    trace = drawn(rng, population(rng, 200), most=40_000)
    trace = shuffled(rng, trace) if misfit else trace
    promised = decisions(KeepAliveWork(trace, flat, 0.5, known)).seen[:, :8]
    gaps = shadow_gaps(trace)
    delivered = (gaps[:, None] <= np.array(MENU[1:])).astype(float)
    assert promised.mean(0) == pytest.approx(delivered.mean(0), abs=0.03)
    # Better than what all functions do together, by the Brier score.
    usual = ((delivered.mean(0) - delivered) ** 2).mean()
    assert ((promised - delivered) ** 2).mean() < 0.7 * usual


def test_a_function_that_changes_is_promised_too_much_at_first_and_then_no_more() -> None:
    arrival = np.cumsum([11.0] * 100 + [401.0] * 100)
    trace = Invocations.of(np.zeros(200, int), arrival, np.ones(200), functions=1, cold_s=1.0, vcpu=1.0, memory_gb=1.0)
    within_30 = decisions(work_of(trace)).seen[:, 3]
    assert within_30[95] > 0.9  # Right until the change.
    assert within_30[110] > 0.6  # Wrong, because old gaps still count.
    assert within_30[-1] < 0.2


# break-even and swarm


def test_break_even_decides_as_a_plain_integration_does() -> None:
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.lognormal(3.0, 1.5, 80))
    trace = Invocations.of(np.zeros(80, int), arrival, rng.uniform(0, 30, 80), functions=1, cold_s=1.3, vcpu=0.6, memory_gb=0.5)
    for lam, intensity in ((0.3, 200.0), (0.5, 450.0), (0.8, 90.0)):
        work = work_of(trace, intensity, lam)
        late, dear = prices(work)
        wanted = [cheapest(masses(gaps, KNOWN.prior), late, dear * intensity) for gaps in known_gaps(trace)]
        assert keeps(work, BreakEven()) == pytest.approx(wanted, rel=1e-4)


def test_the_swarm_comes_near_the_least_expected_cost(some_day: KeepAliveWork) -> None:
    rng = np.random.default_rng(1)
    arrival = np.cumsum(rng.lognormal(3.0, 1.0, 60))
    trace = Invocations.of(np.zeros(60, int), arrival, np.ones(60), functions=1, cold_s=1.0, vcpu=0.3, memory_gb=0.125)
    work = work_of(trace)
    chosen = keeps(work, Swarm())
    assert len(set(chosen.round(6).tolist())) <= 1 + int(arrival[-1] // 3600)  # One choice per hour.
    counts = np.zeros(26)
    late, dear = prices(work)
    arguments = (counts, KNOWN.prior, reuse.EDGES, reuse.MEANS, late, dear * 450.0)
    grid = [reuse.expected_cost(*arguments, keep) for keep in np.linspace(0, 600, 6001)]
    assert reuse.expected_cost(*arguments, float(chosen[0])) <= 1.02 * min(grid)
    assert counted(some_day, Swarm()).cost(0.5, counted(some_day, Static60())) < 1.0


# histogram


def test_ten_gaps_worked_by_hand() -> None:
    # Minutes of the gaps: 10 (twice), 11 (six times), 12 (twice). 5 % of ten lies in minute 10 and 99 % in minute 12.
    gaps = [610.0, 630.0, 660.0, 661.0, 662.0, 663.0, 664.0, 719.0, 720.0, 779.0]
    arrival = np.concatenate(([0.0], np.cumsum(np.array(gaps) + 1.0)))
    trace = Invocations.of(np.zeros(11, int), arrival, np.ones(11), functions=1, cold_s=1.0, vcpu=1.0, memory_gb=1.0)
    work = work_of(trace)
    found = keeps(work, Histogram())
    assert found[0] == 4 * 3600  # Nothing is known yet.
    assert found[1] == pytest.approx(11 * 60 * 1.1)
    assert found[-1] == pytest.approx(13 * 60 * 1.1)
    result = counted(work, Histogram())
    assert result.cold_starts == 1
    # The first pod waits all 610 s; the later ones are ready 540 s after their end, which is minute 10 less a tenth.
    served = [610.0] + [gap - 540.0 for gap in gaps[1:]]
    assert result.idle_s == pytest.approx(sum(served) + 13 * 60 * 1.1 - 540.0)


def test_an_arrival_before_the_pod_is_warm_again_starts_cold_and_takes_its_place() -> None:
    gaps = [1200.0] * 6 + [100.0, 1200.0]
    arrival = np.concatenate(([0.0], np.cumsum(np.array(gaps) + 1.0)))
    trace = Invocations.of(np.zeros(9, int), arrival, np.ones(9), functions=1, cold_s=1.0, vcpu=1.0, memory_gb=1.0)
    result = counted(work_of(trace), Histogram())
    assert result.cold_starts == 2
    # Minute 20 less a tenth is 1,080 s. The pod of the sixth gap's end never becomes warm; later ones are ready from minute 1 on.
    last = 21 * 60 * 1.1
    assert result.idle_s == pytest.approx(1200 + 5 * 120.0 + (1200 - 54) + (last - 54))


def test_gaps_that_say_nothing_keep_the_pod_for_four_hours() -> None:
    beyond = keeps(work_of(regular(20_000.0, 6)), Histogram())
    assert (beyond == 4 * 3600).all()
    rng = np.random.default_rng(0)
    even = 60.0 * rng.permutation(240) + 30.0
    arrival = np.concatenate(([0.0], np.cumsum(even + 1.0)))
    trace = Invocations.of(np.zeros(241, int), arrival, np.ones(241), functions=1, cold_s=1.0, vcpu=1.0, memory_gb=1.0)
    found = keeps(work_of(trace), Histogram())
    # CV² = 240/n − 1 while all counts are one, which is at most 4 from n = 48 on.
    assert (found[1:48] < 4 * 3600 * 1.2).all()
    assert found[2] != 4 * 3600
    assert (found[48:] == 4 * 3600).all()


# Bounds


@pytest.mark.parametrize("lam", [0.1, 0.5, 0.9])
def test_with_equal_pods_on_a_flat_grid_fewer_cold_starts_cost_at_least_as_large_a_share_of_idling(
    some_day: KeepAliveWork, lam: float
) -> None:
    assert isinstance(some_day.trace, Invocations)
    equal = np.ones(some_day.trace.functions)
    work = replace(some_day, trace=replace(some_day.trace, cold_s=equal, vcpu=equal, memory_gb=equal))
    reference = counted(work, Static60())
    for technique in (*TIMERS, Oracle()):
        found = counted(work, technique, lam)
        removed = 1 - found.cold_starts / reference.cold_starts
        assert found.idle_s >= removed * reference.idle_s, technique
    # Pre-warming escapes the bound: gaps of 125 s wait 17 s instead of 60 and are never cold.
    timer = work_of(regular(125.0, 200))
    ahead, fixed = counted(timer, Histogram()), counted(timer, Static60())
    assert ahead.cold_starts == 1
    assert fixed.cold_starts == 200
    assert ahead.idle_s < (1 - ahead.cold_starts / fixed.cold_starts) * fixed.idle_s


@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=2, max_size=5), lam=st.sampled_from([0.2, 0.5, 0.8]),
    cold=st.sampled_from([0.01, 0.3, 3.0]), slope=st.booleans(),
)  # fmt: skip
def test_no_timers_whatever_beat_the_oracle(rows: list[tuple[int, int]], lam: float, cold: float, slope: bool) -> None:
    arrival, duration = zip(*rows)
    trace = Invocations.of(
        np.zeros(len(rows), int), np.array(arrival) * 5.0, np.array(duration) * 2.0, functions=1, cold_s=cold, vcpu=1.0, memory_gb=1.0,
        horizon_s=1000.0,
    )  # fmt: skip
    carbon = Carbon(np.array([0.0, 100.0, 200.0]), np.array([100.0, 400.0, 50.0])) if slope else Carbon.flat(300.0)
    work = KeepAliveWork(trace, carbon, lam, KNOWN)
    reference = counted(work, Static60())
    best = counted(work, Oracle()).cost(lam, reference)
    ends = (trace.arrival_s + trace.duration_s).tolist()
    watts = idle_watts(trace.vcpu, trace.memory_gb)
    for keep in itertools.product(*([0.0, *(a - end for a in sorted(set(trace.arrival_s.tolist())) if a > end)] for end in ends)):
        played = play_fixed(trace, np.nextafter(np.array(keep), np.inf), series=carbon.series)
        grams = float(played.weighted @ watts) / JOULES_PER_KWH
        cost = (1 - lam) * float(played.cold @ trace.cold_s) / reference.cold_s + lam * grams / max(reference.carbon_g, 1e-12)
        assert best <= cost + 1e-6
    for action in MENU:
        assert best <= counted(work, Static60(keep_s=action)).cost(lam, reference) + 1e-9


def test_twelve_gaps_times_nine_actions() -> None:
    rng = np.random.default_rng(3)
    gaps = rng.lognormal(4.0, 1.5, 12)
    arrival = np.concatenate(([0.0], np.cumsum(gaps + 1.0)))
    trace = Invocations.of(np.zeros(13, int), arrival, np.ones(13), functions=1, cold_s=1.0, vcpu=1.0, memory_gb=1.0)
    work = work_of(trace)
    reference = counted(work, Static60())
    watts = float(idle_watts(1.0, 1.0))
    # Gaps do not overlap, so the best of all 9^12 choices is the sum of the best choices.
    each = [
        min(0.5 * (gap > a) / reference.cold_s + 0.5 * watts * min(gap, a) * 450 / JOULES_PER_KWH / reference.carbon_g for a in MENU)
        for gap in gaps.tolist()
    ]  # fmt: skip
    first = 0.5 * 1.0 / reference.cold_s
    assert counted(work, Oracle()).cost(0.5, reference) <= first + sum(each) + 1e-12


@pytest.mark.parametrize("lam", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_no_technique_that_keeps_pods_by_timers_beats_the_oracle_on_a_day(some_day: KeepAliveWork, lam: float) -> None:
    reference = counted(some_day, Static60())
    best = counted(some_day, Oracle(), lam).cost(lam, reference)
    for technique in TIMERS:
        assert best <= counted(some_day, technique, lam).cost(lam, reference)


# λ, carbon and time


def test_at_the_ends_of_lambda_only_one_side_counts(some_day: KeepAliveWork) -> None:
    longest = counted(some_day, LatencyMin())
    for technique in WEIGHING:
        assert counted(some_day, technique, 1.0).idle_s == 0.0
    assert counted(some_day, LaceRl(), 0.0).cold_starts == pytest.approx(longest.cold_starts, rel=0.01)
    # Not only at the very ends, where all actions but one are dominated.
    free = LaceRl(limit_waits=False)
    assert counted(some_day, free, 0.01).cold_starts <= 1.1 * longest.cold_starts
    assert counted(some_day, free, 0.99).idle_s <= 0.1 * counted(some_day, Static60()).idle_s


@given(
    q=st.lists(st.integers(-50, 50), min_size=9, max_size=9, unique=True), late=st.sampled_from([0.0, 0.3, 7.0, 80.0]),
    dear=st.sampled_from([0.0, 0.01, 0.2, 5.0]),
)  # fmt: skip
def test_a_limited_wait_ends_when_idling_has_cost_a_cold_start(q: list[int], late: float, dear: float) -> None:
    outputs = np.array(q, np.float32)
    chosen = best_allowed(outputs, reuse.KEEPS, late, dear, True)
    enough = [k for k, seconds in enumerate(MENU) if seconds * dear >= late]
    allowed = q if not enough else q[: enough[0] + 1]
    assert chosen == (8 if dear == 0 else allowed.index(max(allowed)))
    assert best_allowed(outputs, reuse.KEEPS, late, dear, False) == q.index(max(q))


def test_the_limit_may_cost_something_where_the_distribution_is_known() -> None:
    # Gaps are 25 s or 80 s with equal odds, and a cold start is worth 60 s of idling: 120 s cost 52.5, and 30 s,
    # the best within the limit of 60 s, cost 57.5.
    late, dear = 60.0, 1.0
    cost = {a: sum(0.5 * (late * (gap > a) + dear * min(gap, a)) for gap in (25.0, 80.0)) for a in MENU}
    assert min(cost, key=lambda a: cost[a]) == 120.0
    q = -np.array([cost[a] for a in MENU], np.float32)
    assert MENU[best_allowed(q, reuse.KEEPS, late, dear, False)] == 120.0
    assert MENU[best_allowed(q, reuse.KEEPS, late, dear, True)] == 30.0


def test_a_timer_of_90_seconds_is_kept_on_a_clean_grid_and_not_on_a_dirty_one() -> None:
    trace = regular(89.0, 120)
    for technique in (BreakEven(), LaceRl()):
        clean, dirty = counted(work_of(trace, 45.0), technique), counted(work_of(trace, 450.0), technique)
        assert clean.cold_starts <= 12, technique
        assert dirty.cold_starts >= 108, technique
    assert counted(work_of(trace, 45.0), Histogram()).cold_starts == counted(work_of(trace, 450.0), Histogram()).cold_starts


def test_a_grid_twice_as_dirty_doubles_the_carbon_of_whoever_does_not_look(some_day: KeepAliveWork) -> None:
    dirty = replace(some_day, carbon=some_day.carbon.scaled(2.0))
    for technique in (Static60(), Static600(), Histogram()):
        assert counted(dirty, technique).carbon_g == 2 * counted(some_day, technique).carbon_g
    assert counted(dirty, BreakEven()).carbon_g < 2 * counted(some_day, BreakEven()).carbon_g


def test_the_arena_plays_fixed_keep_alives_as_faas_does(some_day: KeepAliveWork) -> None:
    assert isinstance(some_day.trace, Invocations)
    ours = play(some_day, Static60().policy(some_day), 0.5)
    theirs = play_fixed(some_day.trace, 60.0, series=some_day.carbon.series)
    for a, b in zip(ours.arrays, theirs.arrays):
        assert np.array_equal(a, b)


def test_decisions_do_not_see_what_comes_after_them(some_day: KeepAliveWork) -> None:
    assert isinstance(some_day.trace, Invocations)
    cut = some_day.trace.until(40_000.0)
    ended = some_day.trace.arrival_s + some_day.trace.duration_s < 40_000.0
    for technique in (Histogram(), *WEIGHING):
        whole, part = keeps(some_day, technique), keeps(replace(some_day, trace=cut), technique)
        early = some_day.trace.arrival_s < 40_000.0
        assert np.array_equal(whole[ended], part[ended[early]])


# Figures over λ


def test_hypervolumes_by_hand() -> None:
    points = [(1.0, 3.0), (2.0, 1.0), (2.5, 2.0), (9.0, 9.0)]
    assert hypervolume(points, (4.0, 4.0)) == 3 * 1 + 2 * 2
    assert pareto_gap([(2.0, 1.0)], points, (4.0, 4.0)) == pytest.approx(1 - 6 / 7)
    assert pareto_gap(points, points, (4.0, 4.0)) == 0.0
    assert joint_share([(50.0, 50.0), (48.31, 22.92)], (100.0, 100.0)) == pytest.approx(1.0)
    assert joint_share([(90.0, 22.92)], (100.0, 100.0)) == pytest.approx(0.1 / 0.5169)


def test_costs_stay_finite_where_the_reference_has_no_cold_start() -> None:
    work = replace(work_of(regular(20.0, 30, cold=2.0)), count_from_s=100.0)
    reference = counted(work, Static60())
    assert reference.cold_starts == 0
    assert reference.cost(0.5, reference) == 0.5
    cold = counted(work, NoKeepAlive())
    assert cold.cost(0.5, reference) == 0.5 * cold.cold_starts
    assert joint_share([(float(cold.cold_starts), 0.0)], (0.0, reference.carbon_g)) == (1 - cold.cold_starts) / 0.5169
    best = counted(work, Oracle()).cost(0.5, reference)
    assert best <= min(reference.cost(0.5, reference), cold.cost(0.5, reference))


def test_every_technique_says_whether_it_weighs() -> None:
    found = arena("scheduling/keepalive")
    for name in found.techniques:
        assert isinstance(found.technique(name).weighs, bool)  # type: ignore[attr-defined]


def test_swarms_of_different_functions_begin_at_different_places() -> None:
    rng = np.random.default_rng(0)
    trace = drawn(rng, population(rng, 30), most=900)
    alike = np.ones(30)
    work = work_of(replace(trace, cold_s=alike, vcpu=alike, memory_gb=alike))
    first = keeps(work, Swarm())[trace.offsets[:-1][np.diff(trace.offsets) > 0]]
    # Nothing is known of any of them, so the best place is one; how near a swarm comes to it differs.
    assert len(set(first.round(9).tolist())) > 10
    assert np.ptp(first) < 0.2 * first.mean()


def test_days_that_do_not_fit_are_streamed_in_blocks() -> None:
    work = built_in(
        np.random.default_rng(0), grid_name="solar-dip", lam=0.5, functions=30, most=2000, length_s=3 * 86400.0, known=("flat", 20, 1000)
    )  # fmt: skip
    assert isinstance(work.trace, Stream)
    (part,) = work.parts()
    found = counted(work, BreakEven())
    assert found.invocations == len(part) <= 2000
    assert found == counted(work, BreakEven())
    held = counted(replace(work, trace=part), BreakEven())
    assert held == found
    halves = replace(work, trace=cast(Any, [part.only(range(10)), part.only(range(10, 30))]))
    joined = play(halves, BreakEven().policy(work), 0.5)
    assert np.array_equal(joined.cold, play(work, BreakEven().policy(work), 0.5).cold)
    with pytest.raises(InputError, match="expected at most 2"):
        built_in(np.random.default_rng(0), grid_name="flat", lam=0.5, functions=3, most=50, length_s=3 * 86400.0, misfit=True)
