"""How much better, and how sure: paired gains and their intervals.

The gain of technique t over b on one case and repeat is b/t for a metric where lower is better, t/b where higher is, or the signed
difference for metrics on a difference scale; more than 1 (0) means t is better. Repeats of a case give their median; cases are
joined by the geometric mean of ratios or the mean of differences, never by a ratio of means.

The interval of a mean over cases is Student's, on the cases' medians, widened towards the side on which they are skewed by Johnson's
correction for skewness. `benchmarks/interval_coverage.py` measures how often it covers the truth: 93 to 97 of 100 times from four cases
on, where percentile and BCa intervals of a bootstrap cover 80 to 93. What is no mean over cases (the best of them, or the repeats of a
single case) keeps a hierarchical bootstrap: cases are drawn with replacement, and in each drawn case its repeats. A resample of k repeats
is never spelled out: its median is an order statistic of k uniform draws, and those follow Beta distributions, so one or two draws give
exactly the same law.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop

RESAMPLES = 10_000
SEED = 20251
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval, over `cases` cases; `single` when one value is all there is."""

    figure: float
    low: float
    high: float
    cases: int
    repeats: int
    single: bool = False


@dataclass(frozen=True)
class Gains:
    """Gains by case, each an array over repeats; `undefined` counts pairs that a ratio cannot compare (zero or negative)."""

    by_case: Mapping[str, np.ndarray]
    ratio: bool
    undefined: int = 0

    def medians(self) -> dict[str, float]:
        """The median gain on each case."""
        return {case: float(np.median(values)) for case, values in self.by_case.items()}

    def interval(self, aggregate: str = "mean", level: float = LEVEL) -> Interval | None:
        """The gain over all cases with its interval at this level, or None when there is nothing.

        It is the geometric mean of ratios and the mean of differences; the mean of either with `arithmetic`, the best case with `max`.
        """
        if not self.by_case:
            return None
        return interval(list(self.by_case.values()), log=self.ratio and aggregate != "arithmetic", aggregate=aggregate, level=level)


def gains(ours: Mapping[str, Mapping[int, float]], theirs: Mapping[str, Mapping[int, float]], better: str, scale: str) -> Gains:
    """Paired gains: `ours` and `theirs` map case to repeat to value; only pairs that both have count."""
    by_case, undefined = {}, 0
    for case in ours:
        pairs = [(ours[case][repeat], theirs[case][repeat]) for repeat in sorted(ours[case]) if repeat in theirs.get(case, {})]
        if not pairs:
            continue
        if scale == "difference":
            sign = -1.0 if better == "lower" else 1.0
            by_case[case] = np.array([sign * (own - other) for own, other in pairs])
            continue
        good = [(own, other) for own, other in pairs if own > 0 and other > 0 and math.isfinite(own) and math.isfinite(other)]
        undefined += len(pairs) - len(good)
        if good:
            by_case[case] = np.array([other / own if better == "lower" else own / other for own, other in good])
    return Gains(by_case, scale == "ratio", undefined)


def interval(cases: Sequence[np.ndarray], *, log: bool, aggregate: str = "mean", level: float = LEVEL) -> Interval:
    """The figure over cases and its interval; `log` joins cases by geometric mean, and needs positive values.

    With one case, and for `aggregate="max"`, the interval is the bootstrap's; it is Student's, widened for skewness, otherwise.
    """
    values, counts = _padded(cases, log)
    rows = np.arange(len(cases))
    medians = 0.5 * (values[rows, (counts - 1) // 2] + values[rows, counts // 2])
    point = float(medians.max() if aggregate == "max" else medians.mean())
    back = math.exp if log else float
    most = int(counts.max())
    if len(cases) == 1 and most == 1:
        return Interval(back(point), back(point), back(point), 1, 1, single=True)
    if aggregate != "max" and len(cases) > 1:
        low, high = mean_interval(medians, level)
    else:
        low, high = _quantiles(resample(values, counts, best=aggregate == "max"), (1 - level) / 2, (1 + level) / 2)
    return Interval(back(point), _finite(back, low), _finite(back, high), len(cases), most)


def level(cases: Sequence[np.ndarray], scale: str) -> Interval:
    """A technique's own level over cases, each with the values of its repeats: the geometric mean on a ratio scale."""
    positive = all((values > 0).all() and np.isfinite(values).all() for values in cases)
    return interval(cases, log=positive and scale == "ratio")


def mean_interval(values: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """The interval of the mean of two or more values: Student's, widened on one side where the values are skewed.

    Johnson (1978) moves the whole interval by g·s·(1 + 2q²)/(6n), with skewness g, deviation s and Student's quantile q. Moved as a
    whole it would cover heavy tails badly, so only the end on that side moves.
    """
    n = len(values)
    if not np.isfinite(values).all():
        # A lossless compressor has an infinite PSNR, so the mean of the differences has no interval.
        return math.nan, math.nan
    deviation = float(values.std(ddof=1))
    # Equal values differ by rounding alone.
    if deviation <= 1e-12 * float(np.abs(values).max()):
        return float(values.mean()), float(values.mean())
    middle, q = float(values.mean()), _student(n - 1, level)
    low, high = middle - q * deviation / math.sqrt(n), middle + q * deviation / math.sqrt(n)
    if n > 2:
        skewness = float(np.mean((values - middle) ** 3)) / deviation**3 * math.sqrt(n * (n - 1)) / (n - 2)
        shift = skewness * deviation * (1 + 2 * q * q) / (6 * n)
        low, high = min(low, low + shift), max(high, high + shift)
    return low, high


@functools.lru_cache(maxsize=256)
def _student(freedom: int, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def _finite(back: Callable[[float], float], value: float) -> float:
    """Undoes the logarithm; a handful of cases that differ widely may reach beyond what a float can say."""
    try:
        return back(value)
    except OverflowError:
        return math.inf


def _padded(cases: Sequence[np.ndarray], log: bool) -> tuple[np.ndarray, np.ndarray]:
    """Each case's values sorted, as rows of one array padded with NaN, and how many each row has."""
    counts = np.array([len(case) for case in cases], np.int64)
    values = np.full((len(cases), int(counts.max())), np.nan)
    for row, case in zip(values, cases, strict=True):
        row[: len(case)] = np.sort(np.log(case) if log else case)
    return values, counts


def resample(values: np.ndarray, counts: np.ndarray, *, best: bool = False) -> np.ndarray:
    """The statistic of each resample: the mean, or with `best` the largest, of the drawn cases' resampled medians.

    `values` float64[cases, most repeats], each row sorted and padded; `counts` how many each row has.
    """
    sizes = tuple(sorted({int(k) for k in counts}))
    if len(sizes) > 1:
        return _ragged(values, counts, *_draws(len(counts), sizes), best)
    lower, upper = _places(len(counts), sizes[0], values.shape[1])
    return _even(values.ravel(), lower, upper, best)


@functools.lru_cache(maxsize=16)
def _places(cases: int, size: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the two middle values of each drawn case stand in the flattened table; one array twice when they are one."""
    which, lower, upper, _ = _draws(cases, (size,))
    first = which * np.int32(width) + lower[0] if cases > 1 else lower[0]
    return first, first if size % 2 else (which * np.int32(width) + upper[0] if cases > 1 else upper[0])


def _quantiles(values: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Two quantiles with linear interpolation, as np.quantile gives them, from one partial sort."""
    positions = [q * (len(values) - 1) for q in (low, high)]
    ranks = [min(int(p), len(values) - 2) for p in positions]
    ordered = np.partition(values, sorted({ranks[0], ranks[0] + 1, ranks[1], ranks[1] + 1}))
    found = [float(ordered[r] + (p - r) * (ordered[r + 1] - ordered[r])) for p, r in zip(positions, ranks, strict=True)]
    return found[0], found[1]


@functools.lru_cache(maxsize=16)
def _draws(cases: int, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Random draws shared by every interval of this shape: cases, and for each number of repeats the two middle positions.

    With k draws the m-th smallest of k uniforms is Beta(m, k - m + 1), and the next one u + (1 - u)·Beta(1, k - m).
    """
    rng = np.random.Generator(np.random.PCG64DXSM(SEED))
    which = rng.integers(0, cases, (RESAMPLES, cases)).astype(np.int32)
    lower = np.empty((len(sizes), RESAMPLES, cases), np.int32)
    upper = np.empty_like(lower)
    of_size = np.full(max(sizes) + 1, -1, np.int64)
    for i, k in enumerate(sizes):
        of_size[k] = i
        m = (k + 1) // 2
        first = rng.beta(m, k - m + 1, (RESAMPLES, cases))
        second = first + (1 - first) * rng.beta(1, k - m, (RESAMPLES, cases)) if k % 2 == 0 else first
        lower[i] = np.minimum(first * k, k - 1).astype(np.int32)
        upper[i] = np.minimum(second * k, k - 1).astype(np.int32)
    return which, lower, upper, of_size


@loop
def _even(table, lower, upper, best):  # type: ignore[no-untyped-def]
    """All cases have as many repeats: the places were worked out beforehand."""
    resamples, cases = lower.shape
    found = np.empty(resamples)
    for r in range(resamples):
        total, largest = 0.0, -np.inf
        for c in range(cases):
            median = 0.5 * (table[lower[r, c]] + table[upper[r, c]])
            total += median
            largest = max(largest, median)
        found[r] = largest if best else total / cases
    return found


@loop
def _ragged(values, counts, which, lower, upper, of_size, best):  # type: ignore[no-untyped-def]
    """Cases with different numbers of repeats, where some failed."""
    resamples, cases = which.shape
    found = np.empty(resamples)
    for r in range(resamples):
        total, largest = 0.0, -np.inf
        for c in range(cases):
            case = which[r, c] if cases > 1 else 0
            size = of_size[counts[case]]
            median = 0.5 * (values[case, lower[size, r, c]] + values[case, upper[size, r, c]])
            total += median
            largest = max(largest, median)
        found[r] = largest if best else total / cases
    return found
