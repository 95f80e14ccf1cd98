"""Times at which work arrives, in seconds from 0 on: Poisson, bursty, by the hour of the day, or a trace's own at another rate.

Every function draws from the generator that it is given, in an order that its docstring fixes, so the same generator gives the same
times for ever.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .checks import Floats, Ints, count, positive

DAY_S = 86400.0


def poisson(rng: np.random.Generator, n: int, rate: float | None = None, *, mean_s: float | None = None) -> Floats:
    """`n` arrivals at independent exponential gaps: t_i = E_1 + … + E_i, with E ~ Exp(mean 1/rate).

    rate: arrivals per second; or mean_s: seconds between two of them. The draws are `rng.exponential(mean, n)`.
    """
    if (rate is None) == (mean_s is None):
        raise InputError("poisson: expected rate or mean_s, one of the two")
    mean = 1.0 / positive("rate", rate) if rate is not None else positive("mean_s", mean_s)
    return np.cumsum(rng.exponential(mean, count("n", n)))


def gamma(rng: np.random.Generator, n: int, rate: float, cv: float) -> Floats:
    """`n` arrivals whose gaps are gamma-distributed with mean 1/rate seconds and coefficient of variation `cv`.

    The shape is k = 1/cv². cv above 1 makes bursts, below 1 regular arrivals, and 1 is `poisson`'s law.
    The draws are `rng.gamma(k, 1/(rate·k), n)`.
    """
    shape = 1.0 / positive("cv", cv) ** 2
    return np.cumsum(rng.gamma(shape, 1.0 / (positive("rate", rate) * shape), count("n", n)))


def mmpp(rng: np.random.Generator, n: int, rate: float, *, burst: float, on_s: float, off_s: float) -> Floats:
    """`n` arrivals of a Markov-modulated Poisson process with two states: calm, and bursts in which they come `burst` times as fast.

    Bursts last `on_s` seconds on average and calm spells `off_s`, both exponential, calm first. `rate` arrivals per second is the mean
    over both: the calm rate is rate·(on + off)/(burst·on + off). For each spell the draws are its length, the Poisson number of
    arrivals, and their uniform places.

    Fischer and Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook, 1993.
    """
    positive("burst", burst)
    calm = positive("rate", rate) * (positive("on_s", on_s) + positive("off_s", off_s)) / (burst * on_s + off_s)
    return _spells(rng, count("n", n), calm, (1.0, burst), (off_s, on_s))


def on_off(rng: np.random.Generator, n: int, rate: float, *, on_s: float, off_s: float) -> Floats:
    """`n` arrivals of an interrupted Poisson process: none for `off_s` seconds, then rate·(on + off)/on per second for `on_s`.

    Both spells are exponential, the silent one comes first, and `rate` per second is the mean over both. The draws are those of `mmpp`.
    """
    fast = positive("rate", rate) * (positive("on_s", on_s) + positive("off_s", off_s)) / on_s
    return _spells(rng, count("n", n), fast, (0.0, 1.0), (off_s, on_s))


def _spells(rng: np.random.Generator, n: int, rate: float, factors: tuple[float, ...], means_s: tuple[float, ...]) -> Floats:
    out: list[Floats] = []
    made, t, state = 0, 0.0, 0
    while made < n:
        length = rng.exponential(means_s[state])
        # The product in this order: its last bit decides what the generator gives.
        out.append(window(rng, length * rate * factors[state], length, t))
        made, t, state = made + len(out[-1]), t + length, (state + 1) % len(factors)
    return np.concatenate(out)[:n] if out else np.zeros(0)


def window(rng: np.random.Generator, expected: float, length_s: float, start_s: float = 0.0) -> Floats:
    """A Poisson number of arrivals with mean `expected`, uniform over [start_s, start_s + length_s) and sorted.

    These are the arrivals of a Poisson process of expected/length_s per second within a window. The draws are
    `rng.poisson(expected)` and `rng.random(n)`.
    """
    if not (math.isfinite(expected) and expected >= 0):
        raise InputError(f"expected: found {expected}; expected a number of at least 0")
    return np.sort(rng.random(rng.poisson(expected))) * length_s + start_s


def spread(rng: np.random.Generator, counts: npt.ArrayLike, length_s: float) -> tuple[Floats, Ints]:
    """(seconds, source) of arrivals that are known as counts per period and source, uniform within their period of `length_s` seconds.

    counts: whole numbers [periods, sources], such as a trace's invocations per minute and function, or `rng.poisson(expected)` for
    sources whose rates change from period to period. The result is in the order of periods and sources; only the periods are sorted.
    The draws are `rng.random(total)`.
    """
    table = np.asarray(counts)
    if table.ndim != 2 or table.dtype.kind not in "iu" or (table.size and table.min() < 0):
        raise InputError(f"counts: found {table.dtype} of {table.ndim} dimensions; expected whole numbers [periods, sources] from 0")
    period, source = np.nonzero(table)
    many = table[period, source]
    period, source = np.repeat(period, many), np.repeat(source, many)
    return (period + rng.random(len(period))) * positive("length_s", length_s), source


def batches(rng: np.random.Generator, n: int, rate: float, mean_size: float) -> Floats:
    """`n` arrivals that come in batches: a compound Poisson process with geometric batch sizes of mean `mean_size`.

    Batches come at rate/mean_size per second, so `rate` is the mean rate of single arrivals. The draws are `n` gaps and `n` sizes.
    """
    if not mean_size >= 1:
        raise InputError(f"mean_size: found {mean_size}; expected at least 1")
    times = poisson(rng, n, positive("rate", rate) / mean_size)
    return np.repeat(times, np.minimum(rng.geometric(1 / mean_size, n), n))[:n]


def diurnal(rng: np.random.Generator, n: int, rate: float, swing: float, *, day_s: float = DAY_S) -> Floats:
    """`n` arrivals at rate·(1 + swing·sin(2πt/day)) per second, by thinning arrivals of the highest rate.

    The draws alternate: a gap at the highest rate, then a uniform number that decides whether this arrival stays.

    Lewis and Shedler, Simulation of nonhomogeneous Poisson processes by thinning, 1979.
    """
    if not 0 <= swing <= 1:
        raise InputError(f"swing: found {swing}; expected 0 to 1")
    most, t = positive("rate", rate) * (1 + swing), 0.0
    out: list[float] = []
    while len(out) < n:
        t += rng.exponential(1.0 / most)
        if rng.random() * most <= rate * (1 + swing * np.sin(2 * np.pi * t / positive("day_s", day_s))):
            out.append(t)
    return np.array(out)


def profiled(rng: np.random.Generator, n: int, rate: float, profile: npt.ArrayLike, *, period_s: float = DAY_S) -> Floats:
    """`n` arrivals whose rate follows a profile that repeats: 24 factors for the hours of a day, or 168 for those of a week.

    The rate in part j of the period is rate·profile[j]/mean(profile), so `rate` per second is the mean. With Λ the integral of that
    rate, t_i = Λ⁻¹(E_1 + … + E_i), E ~ Exp(1). The draws are `rng.exponential(1, n)`.

    Çinlar, Introduction to Stochastic Processes, 1975 (inversion of the cumulative rate).
    """
    factors = np.asarray(profile, float)
    if factors.ndim != 1 or not len(factors) or not np.isfinite(factors).all() or factors.min() < 0 or factors.sum() <= 0:
        raise InputError("profile: expected factors of at least 0, not all 0")
    mass = np.concatenate(([0.0], np.cumsum(factors) / factors.sum()))
    done = np.cumsum(rng.exponential(1.0, count("n", n))) / (positive("rate", rate) * positive("period_s", period_s))
    whole = np.floor(done)
    return (whole + np.interp(done - whole, mass, np.arange(len(factors) + 1) / len(factors))) * period_s


def replay(times_s: npt.ArrayLike, rate: float | None = None) -> Floats:
    """The arrivals of a trace, sorted, from 0 on, and stretched or squeezed to `rate` per second where one is given.

    The trace's own rate is n/(last − first), so t_i = (s_i − s_1)·n/(s_n − s_1)/rate. Nothing is drawn.
    """
    found: Any = np.sort(np.asarray(times_s, float), kind="stable")
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise InputError("times_s: expected finite seconds, at least one")
    if rate is None:
        return np.asarray(found - found[0])
    span = float(found[-1] - found[0])
    if span <= 0:
        raise InputError(f"times_s: found {len(found)} arrivals over {span:g} s; expected two or more at different times")
    return np.asarray((found - found[0]) * (len(found) / span) / positive("rate", rate))
