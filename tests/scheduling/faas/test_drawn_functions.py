"""The drawn day: the published skew, the cap, and blocks that are the whole."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.scheduling.faas import drawn, population, shuffled, streamed
from armillary.scheduling.faas.drawn import DAY_S, most_each


def test_rates_have_the_published_skew() -> None:
    people = population(np.random.default_rng(0), 5000)
    per_day = np.sort(people.rate) * DAY_S
    assert (per_day <= 24).mean() == pytest.approx(0.45, abs=0.001)
    assert (per_day <= 1440).mean() == pytest.approx(0.81, abs=0.001)
    assert per_day[-930:].sum() / per_day.sum() == pytest.approx(0.996, abs=0.001)


def test_a_day_of_500_functions_has_at_most_200000_invocations_and_most_of_them() -> None:
    rng = np.random.default_rng(1)
    trace = drawn(rng, population(rng, 500))
    assert 150_000 <= len(trace) <= 200_000
    assert trace.arrival_s.min() >= 0
    assert trace.arrival_s.max() <= DAY_S
    for f in range(trace.functions):
        assert (np.diff(trace.arrival_s[trace.offsets[f] : trace.offsets[f + 1]]) >= 0).all()
    assert 0.5 <= np.median(trace.cold_s) <= 1.0
    assert trace.cold_s.max() <= 7.0


def test_busy_functions_are_shown_for_a_shorter_time_at_their_own_rate() -> None:
    rng = np.random.default_rng(2)
    people = population(rng, 500)
    trace = drawn(rng, people)
    each = most_each(people, DAY_S, 194_000)
    assert np.minimum(people.rate * DAY_S, each).sum() == pytest.approx(194_000, rel=1e-6)
    timers = [f for f in range(500) if people.kind[f] == "timer" and people.rate[f] * DAY_S > 2 * each]
    assert timers
    for f in timers:
        gaps = np.diff(trace.arrival_s[trace.offsets[f] : trace.offsets[f + 1]])
        assert np.median(gaps) == pytest.approx(1 / people.rate[f], rel=0.02)


def test_blocks_have_the_same_functions_and_about_as_many_invocations() -> None:
    people = population(np.random.default_rng(3), 60)
    whole = drawn(np.random.default_rng(4), people, most=20_000)
    blocks = list(streamed(np.random.default_rng(4), people, length_s=DAY_S, most=20_000, block=25))
    assert [block.functions for block in blocks] == [25, 25, 10]
    assert np.array_equal(np.concatenate([block.cold_s for block in blocks]), whole.cold_s)
    assert sum(map(len, blocks)) == pytest.approx(len(whole), rel=0.15)
    again = list(streamed(np.random.default_rng(4), people, length_s=DAY_S, most=20_000, block=25))
    assert all(np.array_equal(a.arrival_s, b.arrival_s) for a, b in zip(blocks, again))


def test_shuffling_keeps_every_gap_between_arrivals() -> None:
    rng = np.random.default_rng(5)
    trace = drawn(rng, population(rng, 20), most=2000)
    other = shuffled(rng, trace)
    for f in range(20):
        part = slice(int(trace.offsets[f]), int(trace.offsets[f + 1]))
        assert np.sort(np.diff(other.arrival_s[part])) == pytest.approx(np.sort(np.diff(trace.arrival_s[part])), abs=1e-6)
    assert not np.array_equal(trace.arrival_s, other.arrival_s)
