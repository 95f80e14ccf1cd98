"""Pods with keep-alive: by hand, against a plain simulator, and as properties."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from faas_reference import one_function, reference
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.scheduling.energy import Carbon
from armillary.scheduling.faas import Invocations, play, shadow_gaps


def trace_of(rows: list[tuple[int, float, float]], functions: int = 2, cold: float = 2.0) -> Invocations:
    """Invocations of (function, arrival, duration)."""
    f, arrival, duration = zip(*rows) if rows else ((), (), ())
    return Invocations.of(f, arrival, duration, functions=functions, cold_s=cold, vcpu=0.5, memory_gb=0.25)


@st.composite
def traces(draw: st.DrawFn) -> Invocations:
    """A few invocations of two functions, many of which overlap; times on a coarse grid, so that ties happen."""
    rows = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 20)), max_size=14))
    return trace_of([(f, a / 2, d / 2) for f, a, d in rows])


def test_gaps_of_10_and_100_seconds_with_a_minute_of_keep_alive() -> None:
    played = play(one_function([10, 100, 10, 100, 10]), 60.0)
    assert played.cold.tolist() == [1 + 2]
    assert played.idle_s.tolist() == [10 + 60 + 10 + 60 + 10 + 60]
    assert played.latency_s.tolist() == [6 * 1.0 + 3 * 2.0]


def test_two_requests_at_once_need_two_pods_and_the_second_expires() -> None:
    rows = [(0, 0.0, 5.0), (0, 1.0, 5.0), (0, 20.0, 1.0), (0, 40.0, 1.0), (0, 60.0, 1.0)]
    played = play(trace_of(rows, 1), 30.0)
    # The pod that ended last, at 6 s, serves all later ones; that of 5 s idles for its 30 s.
    assert played.cold.tolist() == [2]
    assert played.idle_s.tolist() == [(20 - 6) + (40 - 21) + (60 - 41) + 30 + 30]
    oldest = play(trace_of(rows, 1), 30.0, reuse="lru")
    # The one that waited longest serves first: 5 → 20, 6 → expires at 36, 21 → 40, 41 → 60.
    assert oldest.cold.tolist() == [2]
    assert oldest.idle_s.tolist() == [(20 - 5) + 30 + (40 - 21) + (60 - 41) + 30]


def test_a_pod_that_starts_is_busy_only_if_asked() -> None:
    rows = [(0, 0.0, 1.0), (0, 2.0, 1.0)]
    assert play(trace_of(rows, 1, cold=2.0), 60.0).cold.tolist() == [1]
    assert play(trace_of(rows, 1, cold=2.0), 60.0, startup="busy").cold.tolist() == [2]


def test_nothing_counts_beyond_the_horizon_or_before_the_start() -> None:
    trace = one_function([10, 100])
    assert play(replace(trace, horizon_s=115.0), 60.0).idle_s.tolist() == [10 + 60 + 2]
    late = play(trace, 60.0, count_from_s=20.0)
    assert (late.invocations.tolist(), late.cold.tolist(), late.idle_s.tolist()) == ([1], [1], [52 + 60])


def test_idle_time_is_weighted_by_the_series() -> None:
    carbon = Carbon(np.array([0.0, 5.0, 8.0]), np.array([1.0, 10.0, 100.0]))
    played = play(one_function([9]), 3.0, series=carbon.series)
    # Idle from 1 to 4 s and from 11 to 14 s.
    assert played.weighted.tolist() == [3 * 1.0 + 3 * 100.0]
    weighted = play(one_function([9]), 7.0, series=carbon.series).weighted
    assert weighted.tolist() == [4 * 1.0 + 3 * 10.0 + 7 * 100.0]


@given(trace=traces(), keep=st.lists(st.integers(0, 20), min_size=2, max_size=2), reuse=st.sampled_from(["mru", "lru"]), busy=st.booleans())
def test_the_compiled_pods_do_what_plain_ones_do(trace: Invocations, keep: list[int], reuse: str, busy: bool) -> None:
    cold, idle, _ = reference(trace, lambda f, i, end, gaps: (end, end + keep[f] / 2), reuse=reuse, busy=busy)
    played = play(trace, np.array(keep) / 2, reuse=reuse, startup="busy" if busy else "beside")
    assert played.cold.sum() == sum(cold)
    assert played.idle_s == pytest.approx(idle)


@given(trace=traces(), first=st.integers(0, 40), more=st.integers(0, 40))
def test_a_longer_keep_alive_never_has_more_cold_starts_nor_less_idling(trace: Invocations, first: int, more: int) -> None:
    short, long = play(trace, first / 2), play(trace, (first + more) / 2)
    assert (long.cold <= short.cold).all()
    assert (long.idle_s >= short.idle_s - 1e-9).all()


@given(trace=traces())
def test_shadow_gaps_are_those_of_pods_that_never_leave(trace: Invocations) -> None:
    seen: list[float] = []
    for f in range(trace.functions):
        part = trace.only([f])
        last: list[list[float]] = []
        reference(part, lambda f, i, end, gaps, last=last: (last.append(gaps), (end, end + 1e6))[1])
        seen += last[0] if last else []
    gaps = shadow_gaps(trace)
    assert sorted(gaps[np.isfinite(gaps)].tolist()) == pytest.approx(sorted(seen))


@settings(max_examples=20)
@given(rows=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=2, max_size=5))
def test_no_timers_idle_less_than_the_pairs_of_shadow_gaps_for_as_many_reuses(rows: list[tuple[int, int]]) -> None:
    trace = trace_of([(0, a / 2, d / 2) for a, d in rows], 1)
    gaps = np.sort(shadow_gaps(trace))
    ends = trace.arrival_s + trace.duration_s
    menus = [[0.0, *(a - end for a in sorted(set(trace.arrival_s)) if a > end)] for end in ends.tolist()]
    zero = int((gaps == 0).sum())
    for keep in itertools.product(*menus):
        played = play(trace, np.nextafter(np.array(keep), np.inf))
        reuses = len(trace) - int(played.cold[0])
        assert reuses >= zero
        assert played.idle_s[0] >= gaps[:reuses].sum() - 1e-6


def test_quantiles_of_latencies_are_right_to_a_third_of_a_percent() -> None:
    rng = np.random.default_rng(0)
    duration = rng.lognormal(0, 2, 5000)
    trace = Invocations.of(np.zeros(5000, int), 1e4 * np.arange(5000), duration, functions=1, cold_s=0.0, vcpu=1.0, memory_gb=1.0)
    played = play(trace, 0.0)
    for share in (0.5, 0.9, 0.99):
        assert played.quantile(share) == pytest.approx(np.quantile(duration, share, method="inverted_cdf"), rel=0.003)
    assert math.isclose(played.latency_s.sum(), duration.sum())


def test_an_empty_trace_is_played() -> None:
    trace = trace_of([])
    assert play(trace, 60.0).cold.sum() == 0
    assert play(trace, 60.0).quantile(0.99) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"duration_s": [-1.0, 1.0]}, "duration"),
        ({"arrival_s": [0.0, math.nan]}, "arrival"),
        ({"arrival_s": [0.0, 1e11]}, "expected a finite number from -1e\\+10 to 1e\\+10"),
        ({"function": [0, 2]}, "function 2"),
        ({"cold_s": -1.0}, "cold_s"),
        ({"memory_gb": math.inf}, "memory_gb"),
        ({"duration_s": [1.0]}, "durations"),
    ],
)
def test_impossible_invocations_are_refused(change: dict[str, object], said: str) -> None:
    facts: dict[str, object] = {"function": [0, 1], "arrival_s": [0.0, 1.0], "duration_s": [1.0, 1.0], "cold_s": 1.0, "memory_gb": 1.0}
    with pytest.raises(InputError, match=said):
        Invocations.of(**facts | change, functions=2, vcpu=1.0)  # type: ignore[arg-type]


def test_wrong_rules_and_keep_alives_are_refused() -> None:
    trace = one_function([1])
    for bad in ({"reuse": "fifo"}, {"startup": "later"}):
        with pytest.raises(InputError, match="expected"):
            play(trace, 1.0, **bad)  # type: ignore[arg-type]
    for keep in (-1.0, math.nan, [1.0, 2.0, 3.0]):
        with pytest.raises(InputError, match="keep-alives"):
            play(trace, keep)
