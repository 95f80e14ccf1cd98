"""Gains and intervals: by hand, against SciPy, against spelled-out resampling, and their coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from armillary.claim import percent_of_ratio, ratio_of_percent
from armillary.study import gains as g
from armillary.study.gains import gains, interval


def test_gains_by_hand() -> None:
    lower = gains({"a": {0: 2.0, 1: 4.0}}, {"a": {0: 4.0, 1: 4.0}}, "lower", "ratio")
    assert lower.by_case["a"].tolist() == [2.0, 1.0]
    higher = gains({"a": {0: 2.0}}, {"a": {0: 4.0}}, "higher", "ratio")
    assert higher.by_case["a"].tolist() == [0.5]
    difference = gains({"a": {0: 0.9}}, {"a": {0: 0.7}}, "higher", "difference")
    assert difference.by_case["a"].tolist() == pytest.approx([0.2])
    assert gains({"a": {0: 0.9}}, {"a": {0: 0.7}}, "lower", "difference").by_case["a"].tolist() == pytest.approx([-0.2])


def test_only_pairs_count_and_zeros_are_undefined() -> None:
    found = gains({"a": {0: 1.0, 1: 0.0, 2: 3.0}, "b": {0: 1.0}}, {"a": {0: 2.0, 1: 1.0}, "c": {0: 1.0}}, "lower", "ratio")
    assert {case: values.tolist() for case, values in found.by_case.items()} == {"a": [2.0]}
    assert found.undefined == 1


def test_percent_arithmetic() -> None:
    assert ratio_of_percent(40, "lower") == pytest.approx(1.6667, abs=1e-4)
    assert ratio_of_percent(300, "higher") == 4
    assert ratio_of_percent(100, "lower") == math.inf
    assert percent_of_ratio(100 / 70, "lower") == pytest.approx(30.0)


def test_cases_are_joined_by_the_geometric_mean_of_medians() -> None:
    found = interval([np.array([1.0, 4.0, 2.0]), np.array([8.0])], log=True)
    assert found.figure == pytest.approx(4.0)
    assert interval([np.array([1.0, 2.0]), np.array([8.0])], log=False).figure == pytest.approx(4.75)
    assert interval([np.array([1.0]), np.array([8.0])], log=False, aggregate="max").figure == 8.0


def test_one_value_is_its_own_interval() -> None:
    found = interval([np.array([3.0])], log=True)
    assert (found.figure, found.low, found.high, found.single) == (pytest.approx(3.0), pytest.approx(3.0), pytest.approx(3.0), True)


@pytest.mark.parametrize("cases", [9, 14])
def test_one_level_agrees_with_scipy(cases: int) -> None:
    values = np.random.default_rng(cases).lognormal(0, 0.4, cases)
    ours = interval([np.array([v]) for v in values], log=False)
    method = "BCa" if cases >= g.BCA_CASES else "percentile"
    stream = np.random.Generator(np.random.PCG64DXSM(g.SEED))
    peer = stats.bootstrap((values,), np.mean, n_resamples=g.RESAMPLES, method=method, rng=stream).confidence_interval
    width = peer.high - peer.low
    assert abs(ours.low - peer.low) < 0.005 * width
    assert abs(ours.high - peer.high) < 0.005 * width


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_the_resampled_median_has_the_law_of_spelled_out_resamples(size: int) -> None:
    values = np.sort(np.random.default_rng(size).normal(size=size))
    exact: dict[float, float] = {}
    for drawn in itertools.product(values, repeat=size):
        median = float(np.median(drawn))
        exact[round(median, 12)] = exact.get(round(median, 12), 0) + size**-size
    found = g.resample(values[None, :], np.array([size]))
    for median, probability in exact.items():
        share = np.mean(np.isclose(found, median, atol=1e-9))
        assert abs(share - probability) < 5 * math.sqrt(probability / g.RESAMPLES), (median, share, probability)


@pytest.mark.parametrize("best", [False, True])
def test_equal_and_ragged_tables_agree(best: bool) -> None:
    table = np.sort(np.random.default_rng(3).normal(size=(7, 4)), axis=1)
    counts = np.full(7, 4)
    ragged = g._ragged(table, counts, *g._draws(7, (4,)), best)
    assert np.allclose(g.resample(table, counts, best=best), ragged)


def test_intervals_cover_what_they_should() -> None:
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(1000):
        centres = rng.normal(1.0, 0.1, 12)
        found = interval([rng.normal(c, 0.15, 5) for c in centres], log=False)
        inside += found.low <= 1.0 <= found.high
    assert 930 <= inside <= 970


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), min_size=1, max_size=15), st.booleans())
def test_the_interval_lies_within_the_values(rows: list[list[float]], log: bool) -> None:
    cases = [np.array(row) for row in rows]
    found = interval(cases, log=log)
    smallest, largest = min(map(min, rows)), max(map(max, rows))
    slack = 1e-9 * largest
    assert smallest - slack <= found.low <= found.high <= largest + slack
    again = interval(cases, log=log)
    assert (found.low, found.high) == (again.low, again.high)


@given(st.floats(0.1, 10))
def test_equal_values_have_no_width(value: float) -> None:
    found = interval([np.array([value] * 3)] * 12, log=True)
    assert found.low == pytest.approx(value)
    assert found.high == pytest.approx(value)
