"""The draws that arenas made by hand, spelled out: every function gives the same bits and leaves the generator in the same state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from armillary import workloads as w

Rng = np.random.Generator


def same(ours: Callable[[Rng], Any], by_hand: Callable[[Rng], Any]) -> None:
    for seed in range(5):
        a, b = np.random.default_rng(seed), np.random.default_rng(seed)
        found, expected = ours(a), by_hand(b)
        for one, other in zip(found, expected, strict=True) if isinstance(expected, tuple) else ((found, expected),):
            one, other = np.asarray(one), np.asarray(other)
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert one.tobytes() == other.tobytes()
        assert a.bit_generator.state == b.bit_generator.state


def test_poisson() -> None:
    same(lambda rng: w.poisson(rng, 500, 3.7), lambda rng: np.cumsum(rng.exponential(1.0 / 3.7, 500)))
    same(lambda rng: w.poisson(rng, 500, mean_s=0.13), lambda rng: np.cumsum(rng.exponential(0.13, 500)))


def test_gamma() -> None:
    shape = 1.0 / 2.5**2
    same(lambda rng: w.gamma(rng, 300, 4.0, 2.5), lambda rng: np.cumsum(rng.gamma(shape, 1.0 / (4.0 * shape), 300)))


def test_mmpp() -> None:
    def by_hand(rng: Rng, n: int = 400, rate: float = 7.3, burst: float = 10.0, on_s: float = 1.7, off_s: float = 9.1) -> Any:
        calm = rate * (on_s + off_s) / (burst * on_s + off_s)
        out: list[Any] = []
        count, t, bursting = 0, 0.0, False
        while count < n:
            length = rng.exponential(on_s if bursting else off_s)
            here = np.sort(rng.random(rng.poisson(length * calm * (burst if bursting else 1.0)))) * length + t
            out.append(here)
            count, t, bursting = count + len(here), t + length, not bursting
        return np.concatenate(out)[:n]

    same(lambda rng: w.mmpp(rng, 400, 7.3, burst=10.0, on_s=1.7, off_s=9.1), by_hand)


def test_diurnal() -> None:
    def by_hand(rng: Rng, n: int = 200, rate: float = 0.01, swing: float = 0.6, day_s: float = 86400.0) -> Any:
        most, t = rate * (1 + swing), 0.0
        out: list[float] = []
        while len(out) < n:
            t += rng.exponential(1.0 / most)
            if rng.random() * most <= rate * (1 + swing * np.sin(2 * np.pi * t / day_s)):
                out.append(t)
        return np.array(out)

    same(lambda rng: w.diurnal(rng, 200, 0.01, 0.6), by_hand)


def test_window() -> None:
    def by_hand(rng: Rng) -> Any:
        n = rng.poisson(0.37 * 1.9 * 600.0)
        return 1200.0 + np.sort(rng.random(n)) * 600.0

    same(lambda rng: w.window(rng, 0.37 * 1.9 * 600.0, 600.0, 1200.0), by_hand)


def test_spread() -> None:
    expected = np.random.default_rng(9).random((6, 40)) * 3

    def by_hand(rng: Rng) -> Any:
        counts = rng.poisson(expected)
        period, adapter = np.nonzero(counts)
        period, adapter = np.repeat(period, counts[period, adapter]), np.repeat(adapter, counts[period, adapter])
        return (period + rng.random(len(period))) * 300.0, adapter

    same(lambda rng: w.spread(rng, rng.poisson(expected), 300.0), by_hand)


def test_replay() -> None:
    times = np.random.default_rng(3).random(50) * 1000

    def by_hand(_: Rng) -> Any:
        order = np.argsort(times, kind="stable")
        rate = len(times) / float(times.max() - times.min())
        return (times[order] - times.min()) * rate

    same(lambda _: w.replay(times, 1.0), by_hand)


@pytest.mark.parametrize("size", [10, 1 << 15])
def test_ranks(size: int) -> None:
    n, alpha = 5000, 0.9
    weights = np.arange(1, n + 1, dtype=float) ** -alpha
    shares = weights / weights.sum()
    same(lambda rng: w.draw(rng, w.cumulative(shares), size), lambda rng: rng.choice(n, size, p=shares))
    same(
        lambda rng: w.draw(rng, np.cumsum(shares), size, side="left"),
        lambda rng: np.searchsorted(np.cumsum(shares), rng.random(size)).clip(0, n - 1),
    )
    same(
        lambda rng: rng.permutation(n)[w.draw(rng, np.cumsum(weights) / weights.sum(), size, side="left")],
        lambda rng: rng.permutation(n)[np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(size)).clip(0, n - 1)],
    )


def test_ranks_in_blocks_with_drift() -> None:
    """As a cache trace has them: blocks of draws, a table of first guesses, and a map that shifts."""
    n, alpha, size, every, step, block = 3000, 0.8, 70_000, 1000, 30, 1 << 14
    turns = np.flatnonzero(np.random.default_rng(0).random(2 * size) < 0.6)[:size]

    def by_hand(rng: Rng) -> Any:
        above = np.cumsum(np.arange(1, n + 1, dtype=np.float64) ** -alpha)
        above /= above[-1]
        ids = np.empty(size, np.int64)
        for start in range(0, size, block):
            part = slice(start, start + block)
            ids[part] = np.searchsorted(above, rng.random(len(ids[part])), side="right")
            ids[part] = (ids[part] + step * (turns[part] // every)) % n
        return ids

    below = w.cumulative(np.arange(1, n + 1, dtype=np.float64) ** -alpha)
    same(lambda rng: w.shifted(w.draw(rng, below, size), turns, n, every=every, step=step), by_hand)


def test_approximate_ranks() -> None:
    def by_hand(rng: Rng, count: int = 10**7, draws: int = 3000) -> Any:
        power = 1 - 0.99
        top, bottom = (count + 0.5) ** power, 0.5**power
        ranks = (bottom + rng.random(draws) * (top - bottom)) ** (1 / power)
        return np.clip(np.round(ranks).astype(np.int64) - 1, 0, max(0, count - 1))

    same(lambda rng: w.zipf_approximate(rng, 10**7, 0.99, 3000), by_hand)


def test_lognormal() -> None:
    same(
        lambda rng: w.whole(w.lognormal(rng, 300, median=110, sigma=1.4), 4, 1024),
        lambda rng: np.clip(np.rint(110.0 * np.exp(1.4 * rng.standard_normal(300))), 4, 1024).astype(np.int64),
    )
    same(
        lambda rng: w.lognormal(rng, 300, mean=9000.0, sigma=0.7),
        lambda rng: 9000.0 * np.exp(0.7 * rng.standard_normal(300) - 0.7**2 / 2),
    )
    same(
        lambda rng: w.whole(w.lognormal(rng, 300, mu=8.5, sigma=1.4), 1, 2**40),
        lambda rng: np.clip(np.rint(rng.lognormal(8.5, 1.4, 300)), 1, 2**40).astype(np.int64),
    )
    same(lambda rng: 65536 * w.lognormal(rng, 300, mu=0, sigma=1.5), lambda rng: 65536 * rng.lognormal(0, 1.5, 300))


def test_quantiles_and_empirical() -> None:
    shares, table = (0.0, 0.1, 0.5, 0.99, 1.0), (2, 181, 1020, 4142, 14050)
    same(
        lambda rng: np.maximum(1, w.quantiles(rng, 200, table, shares)).astype(np.int64),
        lambda rng: np.maximum(1, np.interp(rng.random(200), shares, table)).astype(np.int64),
    )
    values, p = [20, 30, 50], [0.01, 0.98, 0.01]
    same(lambda rng: w.empirical(rng, 100, values), lambda rng: rng.choice(values, 100))
    same(lambda rng: w.empirical(rng, 100, values, p), lambda rng: rng.choice(values, 100, p=np.array(p) / np.sum(p)))


def test_links() -> None:
    def two_states(rng: Rng, high: float = 5.0, low: float = 1.0, mean_s: float = 2.0, period_s: float = 60.0) -> Any:
        times, values, t, up = [0.0], [high], 0.0, True
        while (t := t + float(rng.exponential(mean_s))) < period_s:
            up = not up
            times.append(t)
            values.append(high if up else low)
        return np.array(times), np.array(values)

    same(lambda rng: w.two_states(rng, 5.0, 1.0, 2.0, 60.0), two_states)
    same(
        lambda rng: w.left_by_others(rng, 0.7, 0.3, 60.0),
        lambda rng: (np.array([0.3 * i for i in range(200)]), 1.0 - rng.uniform(0.0, 0.7, 200)),
    )


def test_toggles() -> None:
    def by_hand(rng: Rng, links: int = 5, on_s: float = 10e-3, off_s: float = 40e-3, cycle_s: float = 20.0) -> Any:
        found: list[tuple[float, int]] = []
        for number in range(links):
            length = int(4 * cycle_s / (on_s + off_s)) + 16
            gaps = rng.exponential(1.0, 2 * length) * np.tile([off_s, on_s], length)
            at = np.cumsum(gaps)
            inside = int(np.searchsorted(at, cycle_s * 0.999999))
            found += [(float(t), number) for t in at[: inside - inside % 2]]
        found.sort()
        return np.array([t for t, _ in found]), np.array([k for _, k in found], np.int64)

    same(lambda rng: w.toggles(rng, 5, on_s=10e-3, off_s=40e-3, cycle_s=20.0), by_hand)


def test_outages() -> None:
    def by_hand(rng: Rng, span: float = 100.0) -> Any:
        out, t = [], float(rng.exponential(2.0))
        while t < span:
            down = 0.01 + float(rng.exponential(2.0))
            out.append((t, t + down))
            t += down + 0.01 + float(rng.exponential(2.0))
        return np.array([a for a, _ in out]), np.array([b for _, b in out])

    same(lambda rng: w.outages(rng, 100.0, up_s=2.0, down_s=2.0, least_s=0.01), by_hand)


def test_failures() -> None:
    def by_hand(rng: Rng, gpus: int = 8, window_s: float = 3600.0, mean_s: float = 1500.0) -> Any:
        found = []
        for device in range(gpus):
            t = float(rng.exponential(mean_s))
            while t < window_s:
                repair = float(300.0 * np.exp(0.8 * rng.standard_normal()))
                found.append((t, device, repair))
                t += repair + float(rng.exponential(mean_s))
        found.sort()
        return tuple(np.array(column) for column in zip(*found, strict=True))

    def ours(rng: Rng) -> Any:
        found = w.failures(rng, 8, 3600.0, mtbf_s=1500.0, repair_median_s=300.0, repair_sigma=0.8)
        return found.start_s, found.part, found.repair_s

    same(ours, by_hand)
    assert math.isfinite(ours(np.random.default_rng(0))[2].max())
