"""Gains and intervals: by hand, against SciPy, against spelled-out resampling, and how often they cover the truth."""

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
from armillary.study.gains import Gains, gains, interval


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


def test_the_mean_of_ratios_is_geometric_unless_a_paper_takes_the_arithmetic_one() -> None:
    found = Gains({"a": np.array([1.0]), "b": np.array([4.0]), "c": np.array([2.0])}, ratio=True)
    geometric, arithmetic = found.interval(), found.interval("arithmetic")
    assert geometric is not None
    assert geometric.figure == pytest.approx(2.0)
    assert arithmetic is not None
    assert arithmetic.figure == pytest.approx(7 / 3)
    assert arithmetic.low < 7 / 3 < arithmetic.high


def test_one_value_is_its_own_interval() -> None:
    found = interval([np.array([3.0])], log=True)
    assert (found.figure, found.low, found.high, found.single) == (pytest.approx(3.0), pytest.approx(3.0), pytest.approx(3.0), True)


def test_symmetric_cases_have_students_interval() -> None:
    values = np.array([-3.0, -1.0, 0.5, 2.0, 4.0, 5.0, 6.5, 8.5, 10.5])
    values = np.concatenate([values, 2 * values.mean() - values])  # symmetric about its mean
    peer = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    ours = interval([np.array([v]) for v in values], log=False)
    assert (ours.low, ours.high) == (pytest.approx(peer.low), pytest.approx(peer.high))


def test_skewed_cases_have_a_longer_tail_where_they_are_skewed() -> None:
    values = np.array([1.0, 1.1, 0.9, 1.0, 1.2, 5.0])
    peer = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    for sign in (1, -1):
        ours = interval([np.array([sign * v]) for v in values], log=False)
        near, far = (ours.low, ours.high) if sign > 0 else (-ours.high, -ours.low)
        assert near == pytest.approx(peer.low)
        skewness, q = stats.skew(values, bias=True) * (5 / 6) ** 1.5 * math.sqrt(30) / 4, stats.t.ppf(0.975, 5)
        assert far == pytest.approx(peer.high + skewness * values.std(ddof=1) * (1 + 2 * q * q) / 36)


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


EFFECTS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.lognormal(0, 0.5, n) - np.exp(0.125),
    "heavy": lambda rng, n: rng.standard_t(3, n),
}


@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("cases", [4, 6, 10, 20])
def test_intervals_cover_what_they_should(effects: str, cases: int) -> None:
    """93 to 97 of 100, with room for the standard error of 3,000 studies, which is 0.4."""
    rng = np.random.default_rng(11)
    drawn = EFFECTS[effects](rng, (3000, cases))
    found = [g.mean_interval(row) for row in drawn]
    assert 0.925 <= np.mean([low <= 0 <= high for low, high in found]) <= 0.98


def test_few_cases_rarely_show_an_effect_that_is_not_there() -> None:
    drawn = np.random.default_rng(12).normal(size=(3000, 4))
    assert np.mean([g.mean_interval(row)[0] > 0 for row in drawn]) < 0.03


def test_repeats_widen_the_interval_by_their_noise() -> None:
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(1000):
        centres = rng.normal(1.0, 0.1, 12)
        found = interval([rng.normal(c, 0.15, 5) for c in centres], log=False)
        inside += found.low <= 1.0 <= found.high
    assert 930 <= inside <= 975


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), min_size=1, max_size=15), st.sampled_from(["mean", "max"]))
def test_the_interval_holds_the_figure_and_does_not_depend_on_order(rows: list[list[float]], aggregate: str) -> None:
    cases = [np.array(row) for row in rows]
    for log in (False, True):
        found = interval(cases, log=log, aggregate=aggregate)
        slack = 1e-9 * max(map(max, rows))
        assert found.low - slack <= found.figure <= found.high + slack
        again = interval(cases, log=log, aggregate=aggregate)
        assert (found.low, found.high) == (again.low, again.high)


def test_wildly_different_cases_give_an_endless_interval_rather_than_an_error() -> None:
    found = interval([np.array([1e-300]), np.array([1e300])], log=True)
    assert (found.figure, found.low, found.high) == (pytest.approx(1.0), 0.0, math.inf)


@given(st.floats(0.1, 10))
def test_equal_values_have_no_width(value: float) -> None:
    found = interval([np.array([value] * 3)] * 12, log=True)
    assert found.low == pytest.approx(value)
    assert found.high == pytest.approx(value)


@pytest.mark.filterwarnings("error")
def test_an_infinite_difference_has_no_interval_and_no_warning() -> None:
    found = g.gains({"a": {0: math.inf}, "b": {0: 3.0}}, {"a": {0: 1.0}, "b": {0: 1.0}}, "higher", "difference").interval()
    assert found is not None
    assert found.figure == math.inf
    assert math.isnan(found.low)
