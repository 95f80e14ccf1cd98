"""What is played: requests of one or more functions, what each takes on both backends, and when there is no GPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.workloads import on_off, window

from .functions.curves import FUNCTIONS, PRICES, SIZES, Floats, Function, function, varied

Ints = npt.NDArray[np.int64]
Load = Literal["closed", "poisson", "bursts", "drift", "satellite"]
#: Different starts of a pod that are drawn; further ones repeat them.
STARTS = 64
#: Requests and seconds that a work may have.
MOST_REQUESTS, MOST_SECONDS = 20_000_000, 1e8
#: The SLO, which is Gaia's upper threshold.
SLO_S = 1.0
#: The CPU's load in steady arrivals, and within a burst; bursts and silences in seconds (chosen before any result was seen).
LOAD, BURST_LOAD, BURST_S, SILENCE_S = 0.7, 1.5, 120.0, 300.0
#: The GPU's node is away for the first of these seconds out of every second of these.
AWAY_S, ORBIT_S = 480.0, 1200.0


@dataclass(frozen=True)
class OffloadingWork:
    """Requests grouped by function: those of function f stand at `offsets[f]` to `offsets[f + 1]`, in the order of their arrival.

    In a closed loop a request arrives when the one before is answered, and `arrival_s` says nothing. `service_s` is [2, requests] and
    `start_s` [functions, 2, starts], seconds on the CPU and on the GPU; NaN is measured when it is needed. `mode` is what the inspector
    says of each function, 0 (cpu) to 3 (gpu). `phase` is the controller's first look in intervals. There is no GPU within the rows
    (from, until) of `down_s`. A pod that is idle for `keep_s` is scaled to zero.
    """

    offsets: Ints
    arrival_s: Floats
    service_s: Floats
    start_s: Floats
    mode: Ints
    phase: Floats
    size: Floats
    closed: bool = False
    horizon_s: float = 0.0
    down_s: Floats = None  # type: ignore[assignment]
    keep_s: float = math.inf
    slo_s: float = SLO_S
    prices: tuple[float, float] = PRICES

    def __post_init__(self) -> None:
        if self.down_s is None:
            object.__setattr__(self, "down_s", np.zeros((0, 2)))
        _check(self)

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def functions(self) -> int:
        """The number of functions."""
        return len(self.offsets) - 1

    def first_look(self, f: int, interval_s: float) -> float:
        """Seconds after deployment at which a controller with this interval looks at function f first."""
        return float(self.phase[f]) * interval_s

    def up(self) -> OffloadingWork:
        """The same work with a GPU that stays."""
        return replace(self, down_s=np.zeros((0, 2)))


def _check(work: OffloadingWork) -> None:
    """Proves what the compiled loop relies on."""
    n, functions = len(work.arrival_s), len(work.offsets) - 1
    steps = np.diff(work.offsets)
    if functions < 1 or work.offsets[0] != 0 or work.offsets[-1] != n or (steps < 0).any():
        raise InputError("found offsets that do not cover the requests; expected them to rise from 0 to the number of requests")
    if n > MOST_REQUESTS:
        raise InputError(f"found {n:,} requests; expected at most {MOST_REQUESTS:,}")
    if work.service_s.shape != (2, n) or work.start_s.shape[:2] != (functions, 2) or work.start_s.shape[2] < 1:
        raise InputError(f"found service times {work.service_s.shape} and starts {work.start_s.shape}; expected both backends")
    if work.mode.shape != (functions,) or work.phase.shape != (functions,) or work.size.shape != (n,):
        raise InputError("found modes, phases or sizes of another length; expected one per function, and one size per request")
    for name, values in (("service time", work.service_s), ("start", work.start_s)):
        known = values[~np.isnan(values)]
        if known.size and not (known.min() >= 0 and known.max() <= MOST_SECONDS):
            raise InputError(f"found a {name} of {known[(known < 0) | (known > MOST_SECONDS)][0]:g} s; expected 0 to {MOST_SECONDS:g} s")
    if float(np.nansum(work.service_s.max(axis=0, initial=0.0))) > MOST_SECONDS:
        raise InputError(f"found requests that take more than {MOST_SECONDS:g} s together; expected fewer")
    if ((work.mode < 0) | (work.mode > 3)).any() or not ((work.phase > 0) & (work.phase <= 100)).all():
        raise InputError("found a mode or a phase out of range; expected 0 to 3, and above 0")
    if not work.closed:
        inside = np.ones(n, bool)
        inside[work.offsets[:-1][steps > 0]] = False
        at = work.arrival_s
        if n and not (np.isfinite(at).all() and at.min() >= 0 and at.max() <= MOST_SECONDS):
            raise InputError(f"found an arrival out of range; expected 0 to {MOST_SECONDS:g} s")
        if (np.diff(at, prepend=0.0)[inside] < 0).any():
            raise InputError("found arrivals out of order; expected them not to decrease within a function")
    down = work.down_s
    if down.ndim != 2 or down.shape[1] != 2 or not np.isfinite(down).all() or (np.diff(down.ravel()) <= 0).any():
        raise InputError("found times without a GPU that overlap; expected rows (from, until) in order")
    if not (work.keep_s > 0 and 0 <= work.horizon_s <= MOST_SECONDS and work.slo_s > 0 and min(work.prices) > 0):
        raise InputError("found a keep-alive, a horizon, an SLO or a price out of range; expected positive numbers")


@functools.cache
def published_modes() -> dict[str, int]:
    """What the inspector says of the sources of the published functions."""
    from .functions.sources import published
    from .inspection.inspect import inspect_files

    return {name: inspect_files(files, entry).mode.rank for name, (files, entry) in published().items()}


def script(name: str, length_s: float) -> Floats:
    """Sizes of a closed loop that takes the CPU about `length_s`: whole sweeps of the published sizes, or equal requests."""
    chosen = function(name)
    if not chosen.sized:
        return np.zeros(max(1, round(length_s / (chosen.cpu_ms[0] / 1e3))))
    sweep = float(chosen.service_s(SIZES)[0].sum())
    return np.tile(SIZES, max(1, round(length_s / sweep)))


def mean_service_s(chosen: Function) -> tuple[float, float]:
    """Mean seconds on both backends over the published sizes."""
    cpu, gpu = chosen.service_s(SIZES if chosen.sized else [0.0]).mean(axis=1)
    return float(cpu), float(gpu)


def _arrivals(rng: np.random.Generator, load: Load, rate: float, length_s: float) -> Floats:
    if load == "bursts":
        mean = rate * BURST_LOAD / LOAD * BURST_S / (BURST_S + SILENCE_S)
        found = on_off(rng, 200 + int(8 * mean * length_s), mean, on_s=BURST_S, off_s=SILENCE_S)
        return found[found < length_s]
    return window(rng, rate * length_s, length_s)


def _sizes(rng: np.random.Generator, chosen: Function, load: Load, arrival: Floats, length_s: float) -> Floats:
    if not chosen.sized:
        return np.zeros(len(arrival))
    drawn = rng.random(len(arrival))
    most = arrival / length_s if load == "drift" else 1.0
    return SIZES[1] * np.floor(drawn * most * len(SIZES))


def built_in(
    rng: np.random.Generator, name: str, load: Load, length_s: float, *, variation: float = 0.05, phase: float | None = None,
    mode: int | None = None,
) -> OffloadingWork:  # fmt: skip
    """A published function under a load of `length_s`; the controller's first look is drawn unless `phase` says it in intervals."""
    chosen = function(name)
    down = np.zeros((0, 2))
    if load == "closed":
        size = script(name, length_s)
        arrival = np.zeros(len(size))
    else:
        arrival = _arrivals(rng, load, LOAD / mean_service_s(chosen)[0], length_s)
        size = _sizes(rng, chosen, load, arrival, length_s)
    if load == "satellite":
        first = rng.uniform(0.0, ORBIT_S) - AWAY_S
        begins = first + ORBIT_S * np.arange(int(length_s // ORBIT_S) + 2)
        down = np.stack([np.maximum(begins, 0.0), begins + AWAY_S], 1)
        down = down[(down[:, 1] > down[:, 0]) & (down[:, 0] < length_s)]
    n = len(size)
    service = chosen.service_s(size) * varied(rng, (2, n), variation)
    starts = np.array(chosen.cold_s)[:, None] * varied(rng, (2, STARTS), variation)
    drawn = 1.0 - rng.random()
    return OffloadingWork(
        np.array([0, n]), arrival, service, starts[None], np.array([published_modes()[name] if mode is None else mode]),
        np.array([drawn if phase is None else phase]), size, closed=load == "closed", horizon_s=0.0 if load == "closed" else length_s,
        down_s=down,
    )  # fmt: skip


#: Shares of the published functions in a fleet (chosen).
FLEET = {"matmul": 0.3, "resnet18": 0.3, "tinyllama-short": 0.2, "tinyllama-long": 0.1, "idle-wait": 0.1}


def fleet(rng: np.random.Generator, functions: int, length_s: float, most: int) -> OffloadingWork:
    """Many functions with the rates of Azure's public trace, each one of the published ones; a rate stays within the CPU's load."""
    from armillary.scheduling.faas import drawn, population

    names = [list(FLEET)[k] for k in rng.choice(len(FLEET), functions, p=list(FLEET.values())).tolist()]
    people = population(rng, functions)
    ceiling = np.array([LOAD / mean_service_s(FUNCTIONS[name])[0] for name in names])
    people = replace(people, rate=np.minimum(people.rate, ceiling))
    trace = drawn(rng, people, length_s=length_s, most=most)
    kinds = np.repeat(np.arange(functions), np.diff(trace.offsets))
    size, service = np.zeros(len(trace)), np.zeros((2, len(trace)))
    for name in FLEET:
        rows = np.flatnonzero(np.array([names[f] == name for f in range(functions)])[kinds]) if len(trace) else np.zeros(0, np.int64)
        chosen = FUNCTIONS[name]
        size[rows] = _sizes(rng, chosen, "poisson", trace.arrival_s[rows], length_s)
        service[:, rows] = chosen.service_s(size[rows])
    service = service * varied(rng, service.shape)
    starts = np.array([FUNCTIONS[name].cold_s for name in names])[:, :, None] * varied(rng, (functions, 2, STARTS))
    modes = published_modes()
    return OffloadingWork(
        trace.offsets, trace.arrival_s, service, starts, np.array([modes[name] for name in names]), 1.0 - rng.random(functions), size,
        horizon_s=length_s,
    )  # fmt: skip


def given(
    service_s: Floats, *, arrival_s: Sequence[float] | Floats | None = None, cold_s: tuple[float, float], mode: int, phase: float = 1.0,
    size: Floats | None = None, **how: object,
) -> OffloadingWork:  # fmt: skip
    """One function with these service times, [2, requests]; without arrivals it is a closed loop."""
    service = np.ascontiguousarray(service_s, np.float64)
    n = service.shape[1]
    arrival = np.zeros(n) if arrival_s is None else np.asarray(arrival_s, np.float64)
    horizon = float(arrival[-1]) if arrival_s is not None and n else 0.0
    return OffloadingWork(
        np.array([0, n]), arrival, service, np.array(cold_s, np.float64)[None, :, None].copy(), np.array([mode]), np.array([phase]),
        np.zeros(n) if size is None else np.asarray(size, np.float64), closed=arrival_s is None,
        **{"horizon_s": horizon} | how,  # type: ignore[arg-type]
    )  # fmt: skip
