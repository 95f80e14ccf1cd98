"""A rate that changes in steps, such as the bytes per second of a link or the free share of a device."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from armillary import workloads
from armillary.errors import InputError


@dataclass(frozen=True)
class Rate:
    """A rate of `values[i]` from `times[i]` (seconds, from 0) until the next, which repeats after `period_s`; 0 is an interruption."""

    times: tuple[float, ...]
    values: tuple[float, ...]
    period_s: float
    #: The work done from 0 to each time, and in a whole period.
    _done: list[float] = field(init=False, repr=False, compare=False)
    _whole: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        times, values = self.times, self.values
        if not times or len(times) != len(values) or times[0] != 0:
            raise InputError(f"rate: found {len(times)} times and {len(values)} values; expected as many of each, from 0 s on")
        steps = np.diff([*times, self.period_s])
        if not (np.isfinite(steps).all() and (steps > 0).all()):
            raise InputError("rate: expected times that increase")
        if not (np.isfinite(values).all() and min(values) >= 0 and max(values) > 0):
            raise InputError("rate: expected values of 0 or more, one of them above 0")
        done = np.concatenate([[0.0], np.cumsum(steps * np.asarray(values))])
        object.__setattr__(self, "_done", done.tolist())
        object.__setattr__(self, "_whole", float(done[-1]))

    @classmethod
    def constant(cls, value: float) -> Rate:
        """Returns a rate that never changes."""
        return cls((0.0,), (float(value),), 1.0)

    @property
    def mean(self) -> float:
        """The mean over a period."""
        return self._whole / self.period_s

    def at(self, time_s: float) -> float:
        """Returns the rate at a time."""
        return self.values[bisect_right(self.times, time_s % self.period_s) - 1]

    def finish(self, start_s: float, work: float) -> float:
        """Returns the time at which `work` that begins at `start_s` is done; interruptions are waited for."""
        if work <= 0:
            return start_s
        if len(self.values) == 1:
            return start_s + work / self.values[0]
        turns, inside = divmod(start_s, self.period_s)
        i = bisect_right(self.times, inside) - 1
        due = self._done[i] + self.values[i] * (inside - self.times[i]) + work
        # Work that ends just before an interruption must not wait for its end because of a rounding error.
        more, rest = divmod(due * (1 - 1e-13), self._whole)
        if rest == 0.0:
            more, rest = more - 1, self._whole
        i = bisect_left(self._done, rest) - 1
        return max(start_s, (turns + more) * self.period_s + self.times[i] + (rest - self._done[i]) / self.values[i])

    def scaled(self, factor: float) -> Rate:
        """Returns the same course, `factor` times as fast."""
        return Rate(self.times, tuple(factor * v for v in self.values), self.period_s)


def two_states(high: float, low: float, mean_s: float, period_s: float, rng: np.random.Generator) -> Rate:
    """Draws a Markov chain between two rates that stays `mean_s` seconds in each on average."""
    times, values = workloads.two_states(rng, high, low, mean_s, period_s)
    return Rate(tuple(times.tolist()), tuple(values.tolist()), period_s)


def background(most: float, every_s: float, period_s: float, rng: np.random.Generator) -> Rate:
    """Draws the share of a device that others leave, who take U(0, most) of it, drawn again every `every_s` seconds."""
    times, left = workloads.left_by_others(rng, most, every_s, period_s)
    return Rate(tuple(times.tolist()), tuple(left.tolist()), every_s * len(times))


def read_rate(path: str | Path) -> tuple[Rate, float | None]:
    """Reads (bytes per second, mean latency in seconds or None) from a bandwidth file.

    The file is CSV with `time_s,bandwidth_mbps[,latency_ms]`, or has Mahimahi's form (`.up`, `.down`).
    """
    times, values, end_s, latencies = workloads.read_bandwidth(path)
    rate = Rate(tuple(times.tolist()), tuple(values.tolist()), end_s)
    return rate, None if latencies is None else float(np.mean(latencies))
