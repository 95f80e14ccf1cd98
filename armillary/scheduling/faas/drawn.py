"""A drawn day of serverless functions, with the skew that was published for Azure Functions.

45 % of the applications fire at most once per hour, 81 % at most once per minute, and the busiest 18.6 % make 99.6 % of all invocations
(Serverless in the Wild, USENIX ATC 2020). Here a function has the rate of an application, log-uniform between these quantiles. Pools and
cold starts follow the analysis of Huawei's public cloud trace (EuroSys 2025); their shares are ours.

So that a day of 500 functions stays within 200,000 invocations, a busy function is observed only for a part of the day, which is drawn. It
keeps its own rate in that part, so its gaps, on which keep-alive depends, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.workloads import lognormal, window

from .invocations import Floats, Invocations

DAY_S = 86400.0
#: Quantiles of invocations per day: (share of the functions, invocations per day).
RATES = ((0.0, 1.0), (0.45, 24.0), (0.81, 1440.0), (1.0, 1.11e6))
#: Memory in MB, millicores and share of the functions (ours) of each pool.
POOLS = (
    (128, 300, 0.45), (256, 400, 0.2), (512, 600, 0.18), (1024, 1000, 0.08), (2048, 1800, 0.05), (4096, 3400, 0.03), (8192, 6600, 0.01),
)  # fmt: skip
#: Share (ours) and median cold start in seconds of each runtime.
RUNTIMES = ((0.35, 0.4), (0.35, 0.7), (0.2, 1.4), (0.1, 2.2))
COLDEST_S, COLD_SIGMA = 7.0, 0.5
#: How arrivals come, and the share of the functions (ours).
CLASSES = (("timer", 0.3), ("poisson", 0.3), ("bursty", 0.25), ("daily", 0.15))
#: Medians of durations differ between functions, and durations within one.
MEDIAN_S, BETWEEN_SIGMA, WITHIN_SIGMA, LONGEST_S = 0.6, 1.2, 0.6, 900.0
#: Bursts last 60 s on average, in which arrivals come 20 times as fast as in the calm spells of 30 min.
BURST, BURST_ON_S, BURST_OFF_S = 20.0, 60.0, 1800.0
SWING = 0.8
#: The expected share of the most invocations; their number is drawn, so it needs room.
MARGIN = 0.97


@dataclass(frozen=True)
class Population:
    """Functions, each with its rate per second, its arrival class and its pods."""

    rate: Floats
    kind: tuple[str, ...]
    median_s: Floats
    cold_s: Floats
    vcpu: Floats
    memory_gb: Floats

    def __len__(self) -> int:
        return len(self.rate)


def population(rng: np.random.Generator, functions: int) -> Population:
    """Draws functions: rates by their quantiles (one function per equal share of them, in random order), the rest independently."""
    shares, per_day = (np.array(column) for column in zip(*RATES))
    places = rng.permutation((np.arange(functions) + rng.random(functions)) / functions)
    rate = np.exp(np.interp(places, shares, np.log(per_day))) / DAY_S
    names = [name for name, _ in CLASSES]
    kind = tuple(names[k] for k in rng.choice(len(CLASSES), functions, p=[share for _, share in CLASSES]).tolist())
    pool = rng.choice(len(POOLS), functions, p=[share for *_, share in POOLS])
    runtime = rng.choice(len(RUNTIMES), functions, p=[share for share, _ in RUNTIMES])
    cold = np.array([median for _, median in RUNTIMES])[runtime] * rng.lognormal(0.0, COLD_SIGMA, functions)
    return Population(
        rate, kind, lognormal(rng, functions, median=MEDIAN_S, sigma=BETWEEN_SIGMA), np.minimum(cold, COLDEST_S),
        np.array([cpu for _, cpu, _ in POOLS])[pool] / 1e3, np.array([mb for mb, *_ in POOLS])[pool] / 1024,
    )  # fmt: skip


def most_each(people: Population, length_s: float, most: int) -> float:
    """The most invocations of one function at which all functions together have `most` on average."""
    expected = np.sort(people.rate * length_s)
    if expected.sum() <= most:
        return float(expected[-1]) + 1.0
    below = np.concatenate(([0.0], np.cumsum(expected)[:-1]))
    level = (most - below) / np.arange(len(expected), 0, -1)
    fits = np.flatnonzero(level >= 0)
    chosen = [float(level[k]) for k in fits if level[k] <= expected[k]]
    if not chosen:
        raise InputError(f"found {most} invocations for {len(people)} functions; expected at least one each")
    return chosen[0]


def drawn(rng: np.random.Generator, people: Population, *, length_s: float = DAY_S, most: int = 200_000) -> Invocations:
    """One observation of all functions with at most `most` invocations; busy functions are shown for a shorter time to that end."""
    return _shown(rng, people, length_s, most_each(people, length_s, int(MARGIN * most)))


def _shown(rng: np.random.Generator, people: Population, length_s: float, each: float) -> Invocations:
    arrivals = [_arrivals(rng, people, f, length_s, each) for f in range(len(people))]
    counts = np.array([len(a) for a in arrivals], np.int64)
    median = np.repeat(people.median_s, counts)
    duration = np.minimum(median * rng.lognormal(0.0, WITHIN_SIGMA, len(median)), LONGEST_S)
    return Invocations(
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64), np.concatenate(arrivals) if arrivals else np.zeros(0), duration,
        people.cold_s, people.vcpu, people.memory_gb, horizon_s=length_s, names=tuple(f"f{f}" for f in range(len(people))),
    )  # fmt: skip


def streamed(rng: np.random.Generator, people: Population, *, length_s: float, most: int, block: int = 500) -> Iterator[Invocations]:
    """The same in blocks of functions, one at a time, for work that does not fit into memory. Each block has a random stream of its own."""
    each = most_each(people, length_s, int(MARGIN * most))
    seeds = rng.spawn(-(-len(people) // block))
    for number, first in enumerate(range(0, len(people), block)):
        part = np.arange(first, min(len(people), first + block))
        some = Population(
            people.rate[part], tuple(people.kind[f] for f in part.tolist()), people.median_s[part], people.cold_s[part],
            people.vcpu[part], people.memory_gb[part],
        )  # fmt: skip
        yield _shown(seeds[number], some, length_s, each)


def shuffled(rng: np.random.Generator, trace: Invocations) -> Invocations:
    """The same gaps between the arrivals of each function in random order, so that what follows a gap says nothing about the next."""
    arrival = trace.arrival_s.copy()
    for f in range(trace.functions):
        a = arrival[trace.offsets[f] : trace.offsets[f + 1]]
        if len(a) > 2:
            a[1:] = a[0] + np.cumsum(rng.permutation(np.diff(a)))
    return Invocations(
        trace.offsets, arrival, trace.duration_s, trace.cold_s, trace.vcpu, trace.memory_gb, trace.horizon_s, trace.names
    )  # fmt: skip


def _arrivals(rng: np.random.Generator, people: Population, f: int, length_s: float, each: float) -> Floats:
    """The arrivals of one function within the time for which it is shown."""
    rate = float(people.rate[f])
    shown = min(length_s, each / rate)
    start = rng.uniform(0.0, length_s - shown) if shown < length_s else 0.0
    times = _TIMES[people.kind[f]](rng, rate, start, shown)
    # A burst may fill a short time with many more than were meant.
    return times if shown == length_s else times[: int(np.ceil(each))]


def _timer(rng: np.random.Generator, rate: float, start: float, shown: float) -> Floats:
    period = 1 / rate
    jitter = min(0.01 * period, 5.0)
    times = rng.uniform(0, period) + period * np.arange(int(shown / period) + 1)
    times = times[times < shown]
    return np.sort(start + np.clip(times + rng.uniform(-jitter, jitter, len(times)), 0.0, shown))


def _poisson(rng: np.random.Generator, rate: float, start: float, shown: float) -> Floats:
    return window(rng, rate * shown, shown, start)


def _bursty(rng: np.random.Generator, rate: float, start: float, shown: float) -> Floats:
    """Two states, calm and bursts; the first is drawn by how long each lasts."""
    calm = rate * (BURST_ON_S + BURST_OFF_S) / (BURST * BURST_ON_S + BURST_OFF_S)
    spells = 8 + int(8 * shown / (BURST_ON_S + BURST_OFF_S))
    burst = (np.arange(spells) + int(rng.random() < BURST_ON_S / (BURST_ON_S + BURST_OFF_S))) % 2 == 1
    ends = np.minimum(np.cumsum(rng.exponential(np.where(burst, BURST_ON_S, BURST_OFF_S))), shown)
    begins = np.concatenate(([0.0], ends[:-1]))
    counts = rng.poisson(np.where(burst, BURST * calm, calm) * (ends - begins))
    place = np.repeat(np.arange(spells), counts)
    return np.sort(start + begins[place] + (ends - begins)[place] * rng.random(len(place)))


def _daily(rng: np.random.Generator, rate: float, start: float, shown: float) -> Floats:
    """Thinned arrivals of the highest rate: rate·(1 + swing·sin(2πt/day))."""
    times = window(rng, rate * (1 + SWING) * shown, shown, start)
    return times[rng.random(len(times)) * (1 + SWING) <= 1 + SWING * np.sin(2 * np.pi * times / DAY_S)]


_TIMES = {"timer": _timer, "poisson": _poisson, "bursty": _bursty, "daily": _daily}
