"""Distributions have the laws that their docstrings state: against SciPy at fixed seeds, by hand, and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from armillary import workloads as w
from armillary.errors import InputError
from armillary.workloads.guided import guided_search

N = 20_000


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def fits(values: np.ndarray, law: object) -> None:
    """Kolmogorov and Smirnov: a wrong law has p-values far below this with so many values."""
    assert stats.kstest(values, law.cdf).pvalue > 1e-3  # type: ignore[attr-defined]


# Arrivals


def test_gaps() -> None:
    fits(np.diff(w.poisson(rng(), N, 4.0), prepend=0), stats.expon(scale=0.25))
    fits(np.diff(w.gamma(rng(), N, 4.0, 1.5), prepend=0), stats.gamma(1 / 2.25, scale=2.25 / 4))
    fits(w.window(rng(), 5000, 60.0, 100.0), stats.uniform(100, 60))


@pytest.mark.parametrize(
    "times",
    [
        w.poisson(rng(), N, 20.0), w.gamma(rng(), N, 20.0, 2.0), w.mmpp(rng(), N, 20.0, burst=10, on_s=0.2, off_s=0.9),
        w.on_off(rng(), N, 20.0, on_s=0.3, off_s=0.7), w.batches(rng(), N, 20.0, 5.0), w.diurnal(rng(), N, 20.0, 0.7, day_s=10.0),
        w.profiled(rng(), N, 20.0, [0, 1, 5, 2], period_s=10.0), w.replay(rng().random(N), 20.0),
    ],
)  # fmt: skip
def test_arrivals_are_sorted_and_have_their_rate(times: np.ndarray) -> None:
    assert len(times) == N
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()
    assert N / times[-1] == pytest.approx(20.0, rel=0.08)


def test_bursts_are_denser_than_poisson() -> None:
    def dispersion(times: np.ndarray) -> float:
        counts = np.bincount(times.astype(int))
        return float(counts.var() / counts.mean())

    assert dispersion(w.poisson(rng(), N, 20.0)) == pytest.approx(1, abs=0.15)
    # Σ of a compound Poisson: E[size²]/E[size] = 2·mean − 1 for geometric sizes.
    assert dispersion(w.batches(rng(), N, 20.0, 5.0)) == pytest.approx(9, rel=0.2)
    for times in (w.mmpp(rng(), N, 20.0, burst=10, on_s=2, off_s=9), w.on_off(rng(), N, 20.0, on_s=3, off_s=7)):
        assert dispersion(times) > 5


def test_on_off_is_silent_when_off() -> None:
    times = w.on_off(rng(), N, 20.0, on_s=5.0, off_s=45.0)
    gaps = np.diff(times)
    # At 200 per second a gap of half a second is an off spell; there is one for each burst of 1,000.
    assert (gaps > 0.5).sum() == pytest.approx(N / 1000, rel=0.5)


def test_a_profile_is_followed_part_by_part() -> None:
    profile = np.array([1.0, 0.0, 3.0, 4.0])
    times = w.profiled(rng(), 40_000, 8.0, profile, period_s=20.0)
    found = np.bincount((times % 20.0 // 5.0).astype(int), minlength=4)
    assert found[1] == 0
    assert stats.chisquare(found[[0, 2, 3]], len(times) * profile[[0, 2, 3]] / 8).pvalue > 1e-3
    fits((times[times % 20.0 // 5.0 == 2] % 5.0), stats.uniform(0, 5))
    sine = w.diurnal(rng(), 20_000, 8.0, 1.0, day_s=20.0)
    fits((sine % 20.0) / 20.0, _Sine())


class _Sine:
    """The cumulative share of a day at 1 + sin."""

    @staticmethod
    def cdf(x: np.ndarray) -> np.ndarray:
        return x + (1 - np.cos(2 * np.pi * x)) / (2 * np.pi)


def test_a_constant_profile_is_poisson() -> None:
    assert np.allclose(w.profiled(rng(), 1000, 3.0, [2.0]), np.cumsum(rng().exponential(1, 1000)) / 3.0, rtol=1e-12)


def test_spread_by_hand() -> None:
    times, source = w.spread(rng(), [[2, 0], [0, 1]], 60.0)
    assert source.tolist() == [0, 0, 1]
    assert (times[:2] < 60).all()
    assert 60 <= times[2] < 120


def test_replay_by_hand() -> None:
    assert w.replay([5.0, 3.0, 9.0]).tolist() == [0.0, 2.0, 6.0]
    assert w.replay([5.0, 3.0, 9.0], 1.0).tolist() == [0.0, 1.0, 3.0]
    assert w.replay([4.0]).tolist() == [0.0]


# Popularity


def test_shares_by_hand() -> None:
    assert w.zipf_shares(3, 1.0) == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    assert w.zipf_shares(4, 0).tolist() == [0.25] * 4
    assert w.cumulative([1, 0, 3]).tolist() == [0.25, 0.25, 1.0]


def test_ranks_have_zipfs_shares() -> None:
    for exponent in (0.0, 0.7, 1.0, 2.0):
        found = np.bincount(w.zipf(rng(), 50, exponent, 100_000), minlength=50)
        expected = stats.zipfian(max(exponent, 1e-12), 50).pmf(np.arange(1, 51)) * 100_000
        assert stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > 1e-3


def test_approximate_ranks_are_near() -> None:
    shares, draws = w.zipf_shares(10_000, 0.99), 400_000
    found = np.bincount(w.zipf_approximate(rng(), 10_000, 0.99, draws), minlength=10_000)
    assert found[10:100].sum() / draws == pytest.approx(shares[10:100].sum(), rel=0.05)
    assert found[1000:].sum() / draws == pytest.approx(shares[1000:].sum(), rel=0.05)


@given(
    weights=st.lists(st.floats(0, 10), min_size=1, max_size=30).filter(lambda x: sum(x) > 0),
    u=st.lists(st.floats(0, 1, exclude_max=True), max_size=30),
    edges=st.booleans(),
)
@settings(max_examples=100)
def test_the_guided_search_is_numpys(weights: list[float], u: list[float], edges: bool) -> None:
    below = w.cumulative(weights)
    asked = np.array([*u, *(below[below < 1] if edges else ()), *(np.arange(len(below)) / len(below) if edges else ())])
    assert guided_search(below, asked).tolist() == np.minimum(np.searchsorted(below, asked, "right"), len(below) - 1).tolist()


def test_objects_without_a_share_are_never_drawn() -> None:
    assert set(w.draw(rng(), w.cumulative([0, 1, 0, 1, 0]), 50_000)) == {1, 3}


def test_popularity_shifts_by_hand() -> None:
    ranks = np.array([0, 0, 0, 4, 4])
    assert w.shifted(ranks, np.array([0, 9, 10, 10, 29]), 5, every=10, step=2).tolist() == [0, 0, 2, 1, 3]


# Sizes


def test_lognormal_by_its_three_locations_and_two_spreads() -> None:
    sigma = 0.8
    cv = math.sqrt(math.expm1(sigma**2))
    fits(w.lognormal(rng(), N, median=7.0, sigma=sigma), stats.lognorm(sigma, scale=7.0))
    fits(w.lognormal(rng(), N, mu=math.log(7.0), sigma=sigma), stats.lognorm(sigma, scale=7.0))
    fits(w.lognormal(rng(), N, mean=7.0, cv=cv), stats.lognorm(sigma, scale=7.0 * math.exp(-(sigma**2) / 2)))
    big = w.lognormal(rng(), 400_000, mean=7.0, cv=1.5)
    assert big.mean() == pytest.approx(7.0, rel=0.02)
    assert big.std() / big.mean() == pytest.approx(1.5, rel=0.05)
    by_row = w.lognormal(rng(), (2, 5000), median=np.array([[1.0], [100.0]]), cv=0.5)
    assert np.median(by_row, axis=1) == pytest.approx([1, 100], rel=0.05)


def test_heavy_tails() -> None:
    fits(w.pareto(rng(), N, shape=1.3, least=5.0), stats.pareto(1.3, scale=5.0))
    bounded = w.bounded_pareto(rng(), N, shape=1.1, least=2.0, most=1000.0)
    fits(bounded, stats.truncpareto(1.1, 500.0, scale=2.0))
    assert 2.0 <= bounded.min() <= bounded.max() <= 1000.0
    fits(w.weibull(rng(), N, shape=0.7, mean=10.0), stats.weibull_min(0.7, scale=10.0 / math.gamma(1 + 1 / 0.7)))


def test_measured_values(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("values") / "jobs.csv"
    path.write_text("id,runtime_s\na,1\nb,3\nc,10\n")
    values = w.read_values(path, "runtime_s")
    drawn = w.empirical(rng(), 9000, values)
    assert {float(v): int(n) for v, n in zip(*np.unique(drawn, return_counts=True), strict=True)} == pytest.approx(
        {1.0: 3000, 3.0: 3000, 10.0: 3000}, rel=0.1
    )
    assert set(w.empirical(rng(), 100, ["x", "y"], [0, 1])) == {"y"}
    between = w.quantiles(rng(), N, [0, 10, 100], [0, 0.5, 1])
    assert np.quantile(between, [0.25, 0.5, 0.75]) == pytest.approx([5, 10, 55], rel=0.05)
    assert w.whole([0.2, 1.5, 2.5, 1e30]).tolist() == [1, 2, 2, 1 << 62]


# Parameters that make no sense


@pytest.mark.parametrize(
    "call",
    [
        lambda r: w.poisson(r, 5), lambda r: w.poisson(r, 5, 1.0, mean_s=1.0), lambda r: w.poisson(r, 5, 0), lambda r: w.poisson(r, 5, math.nan),
        lambda r: w.poisson(r, -1, 1.0), lambda r: w.poisson(r, 2.5, 1.0), lambda r: w.gamma(r, 5, 1.0, 0), lambda r: w.diurnal(r, 5, 1.0, 1.5),
        lambda r: w.mmpp(r, 5, 1.0, burst=-1, on_s=1, off_s=1), lambda r: w.on_off(r, 5, 1.0, on_s=0, off_s=1),
        lambda r: w.window(r, -1, 1.0), lambda r: w.window(r, math.inf, 1.0), lambda r: w.batches(r, 5, 1.0, 0.5), lambda r: w.profiled(r, 5, 1.0, []),
        lambda r: w.profiled(r, 5, 1.0, [0, 0]), lambda r: w.profiled(r, 5, 1.0, [1, -1]), lambda r: w.spread(r, [[1.5]], 1.0),
        lambda r: w.spread(r, [[-1]], 1.0), lambda r: w.replay([]), lambda r: w.replay([1.0, 1.0], 2.0), lambda r: w.replay([1.0, math.nan]),
        lambda r: w.zipf(r, 0, 1.0, 5), lambda r: w.zipf(r, 5, -1.0, 5), lambda r: w.zipf_approximate(r, 5, 1.0, 5), lambda r: w.cumulative([]),
        lambda r: w.cumulative([0.0]), lambda r: w.cumulative([1, -1]), lambda r: w.shifted(np.zeros(1, int), np.zeros(1, int), 5, every=0, step=1),
        lambda r: w.lognormal(r, 5), lambda r: w.lognormal(r, 5, median=1, mean=1, sigma=1), lambda r: w.lognormal(r, 5, median=1, sigma=1, cv=1),
        lambda r: w.lognormal(r, 5, median=-1, sigma=1), lambda r: w.lognormal(r, 5, mean=1, sigma=-1), lambda r: w.pareto(r, 5, shape=0, least=1),
        lambda r: w.bounded_pareto(r, 5, shape=1, least=5, most=1), lambda r: w.weibull(r, 5, shape=1, mean=0), lambda r: w.empirical(r, 5, []),
        lambda r: w.empirical(r, 5, [1, 2], [1]), lambda r: w.quantiles(r, 5, [1, 2], [0, 0.5]), lambda r: w.quantiles(r, 5, [2, 1], [0, 1]),
    ],
)  # fmt: skip
def test_nonsense_is_an_input_error(call: object) -> None:
    with pytest.raises(InputError):
        call(rng())  # type: ignore[operator]
