"""A work: functions, nodes, and calls that arrive with deadlines, with everything that the judge knows and a planner does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

from .problem.fleet import Fleet, Floats, Ints
from .problem.functions import MOST_FUNCTIONS, PROFILES, Profile, alone, seconds, smallest

if TYPE_CHECKING:
    from .readers.documents import Read

#: Spread of run times, share and factor of stragglers, and spread of memory peaks.
NOISE, STRAGGLERS, SLOWER, PEAKS = 0.08, 0.02, 2.0, 0.05
#: Deadlines are this many times the p50 alone.
TIGHT, LOOSE = 1.5, 4.0
#: Inputs of misfits, as factors of the work, at equal odds.
BIMODAL = (0.6, 1.6)
#: The owner's memory, as a factor of the peak.
GENEROUS = 2.0
MOST_CALLS, MOST_PAIRS = 20_000_000, 20_000_000
COLD = (0.4, 0.7, 1.4, 2.2)


@dataclass(frozen=True)
class Calls:
    """Calls in the order of their arrival; times in seconds. `size` is the input's, 1 where all are alike."""

    function: Ints
    arrival_s: Floats
    deadline_s: Floats
    size: Floats
    #: Hidden from every planner: what multiplies the run time, how many times fewer cycles it gets, and its memory peak.
    noise: Floats
    stolen: Floats
    peak_mb: Floats

    def __len__(self) -> int:
        return len(self.function)


@dataclass(frozen=True)
class FunctionsWork:
    """What is played. `user` and `tuned` are owners' sizes (indices of `sizes`), misjudged and not; `tight` meets nearly all deadlines."""

    fleet: Fleet
    profiles: tuple[Profile, ...]
    calls: Calls
    user: Ints
    tuned: Ints
    tight: Ints
    user_mb: Floats
    #: Whether planners are told the size of an input.
    sizes_known: bool = False

    @property
    def sizes(self) -> Floats:
        """The sizes that can be given, in vCPUs."""
        return self.fleet.sizes

    @property
    def seconds(self) -> Floats:
        """Seconds of each function alone, `[function, node type, size]`."""
        return seconds(self.profiles, self.fleet, self.sizes)

    @property
    def relative_s(self) -> Floats:
        """The time from arrival to deadline of each call."""
        return self.calls.deadline_s - self.calls.arrival_s

    def median_deadline(self) -> Floats:
        """The median time from arrival to deadline of each function; infinite where it has no calls."""
        return _by_function(self.relative_s, self.calls.function, len(self.profiles), 0.5)

    def profile(self) -> tuple[Floats, Floats]:
        """What an offline profile of all sizes holds: mean and standard deviation, `[function, node type, size]`."""
        times, hidden = self.seconds, self.calls.noise * self.calls.stolen * self.calls.size
        n = len(self.profiles)
        count = np.maximum(np.bincount(self.calls.function, minlength=n), 1)
        mean = np.where(count > 0, np.bincount(self.calls.function, hidden, n) / count, 1.0)
        square = np.bincount(self.calls.function, hidden**2, n) / count
        sd = np.sqrt(np.maximum(square - mean**2, 0.0))
        return times * mean[:, None, None], times * sd[:, None, None]


def _by_function(values: Floats, function: Ints, functions: int, share: float) -> Floats:
    out = np.full(functions, np.inf)
    order = np.argsort(function, kind="stable")
    edges = np.searchsorted(function[order], np.arange(functions + 1))
    for f in range(functions):
        part = values[order[edges[f] : edges[f + 1]]]
        if len(part):
            out[f] = np.quantile(part, share)
    return out


def owned(
    fleet: Fleet, profiles: Sequence[Profile], calls: Calls, rng: np.random.Generator, *, sizes_known: bool = False, misjudged: bool = True
) -> FunctionsWork:
    """The work, with the sizes that owners ask for: the least that meets the median deadline on a standard node, misjudged by 2^±1."""
    check(fleet, profiles, calls)
    sizes = fleet.sizes
    times = seconds(profiles, fleet, sizes)[:, fleet.standard]
    n = len(profiles)
    median = _by_function(calls.deadline_s - calls.arrival_s, calls.function, n, 0.5)
    early = _by_function(calls.deadline_s - calls.arrival_s, calls.function, n, 0.05)
    tuned = np.array([smallest(times[f], median[f]) for f in range(n)], np.int64)
    tight = np.array([smallest(times[f], early[f]) for f in range(n)], np.int64)
    shift = rng.integers(-1, 2, n) if misjudged else np.zeros(n, np.int64)
    user = np.clip(tuned + shift, 0, len(sizes) - 1)
    for f, profile in enumerate(profiles):
        if profile.vcpu is not None:
            fits = np.flatnonzero(sizes >= profile.vcpu - 1e-9)
            user[f] = fits[0] if len(fits) else len(sizes) - 1
    largest = max(kind.memory_mb for kind, count in zip(fleet.types, fleet.counts) if count)
    memory = np.minimum(np.array([GENEROUS * profile.memory_mb for profile in profiles]), largest)
    return FunctionsWork(fleet, tuple(profiles), calls, user.astype(np.int64), tuned, tight, memory, sizes_known)


def check(fleet: Fleet, profiles: Sequence[Profile], calls: Calls) -> None:
    """Raises InputError for a work that cannot be played."""
    for profile in profiles:
        profile.check(fleet)
    if len(profiles) * sum(fleet.counts) > MOST_PAIRS or len(profiles) > MOST_FUNCTIONS:
        raise InputError(f"found {len(profiles):,} functions and {sum(fleet.counts):,} nodes; expected at most {MOST_PAIRS:,} pairs")
    if not 1 <= len(calls) <= MOST_CALLS:
        raise InputError(f"found {len(calls):,} calls; expected 1 to {MOST_CALLS:,}")
    if calls.function.min() < 0 or calls.function.max() >= len(profiles):
        raise InputError(f"found function {calls.function.max()}; expected 0 to {len(profiles) - 1}")
    for name in ("arrival_s", "deadline_s", "size", "noise", "stolen", "peak_mb"):
        values = getattr(calls, name)
        if not np.isfinite(values).all() or np.abs(values).max() > 1e12:
            raise InputError(f"{name}: found a value that is not finite or above 1e12")
    late = np.flatnonzero(calls.deadline_s <= calls.arrival_s)
    if len(late):
        c = int(late[0])
        found = f"found the deadline {calls.deadline_s[c]:g} s with the arrival {calls.arrival_s[c]:g} s"
        raise InputError(f"call {c}: {found}; expected a later deadline")
    if np.any(np.diff(calls.arrival_s) < 0):
        raise InputError("found calls out of order; expected arrivals that do not decrease")


def drawn_calls(
    rng: np.random.Generator, fleet: Fleet, profiles: Sequence[Profile], *, calls: int, load: float, misfit: bool = False,
    tight: float = TIGHT, loose: float = LOOSE,
) -> Calls:  # fmt: skip
    """Calls of all functions at equal odds, as a Poisson stream whose tuned sizes fill `load` of the standard cores."""
    sizes = fleet.sizes
    function = rng.integers(0, len(profiles), calls).astype(np.int64)
    base = alone(profiles, fleet, sizes)
    relative = rng.uniform(tight, loose, calls) * base[function]
    times = seconds(profiles, fleet, sizes)[:, fleet.standard]
    need = np.array([sizes[k] * times[f, k] for f in range(len(profiles)) for k in [smallest(times[f], (tight + loose) / 2 * base[f])]])
    horizon = float(need[function].sum()) / (load * fleet.capacity)
    arrival = np.sort(rng.uniform(0.0, horizon, calls))
    size = np.array(BIMODAL)[rng.integers(0, 2, calls)] if misfit else np.ones(calls)
    return with_hidden(rng, function, arrival, arrival + relative, size, np.array([profile.memory_mb for profile in profiles]))


def with_hidden(rng: np.random.Generator, function: Ints, arrival: Floats, deadline: Floats, size: Floats, memory_mb: Floats) -> Calls:
    """Calls with their noise, stragglers and memory peaks drawn; `memory_mb` is the median peak of each function."""
    n = len(function)
    sigma = np.sqrt(np.log1p(NOISE**2))
    noise = rng.lognormal(0.0, sigma, n)
    stolen = np.where(rng.random(n) < STRAGGLERS, SLOWER, 1.0)
    peak = memory_mb[function] * rng.lognormal(0.0, PEAKS, n)
    return Calls(function, arrival, deadline, size, noise, stolen, peak)


def built_in(
    rng: np.random.Generator, fleet: Fleet, *, names: Sequence[str], calls: int, load: float, misfit: bool = False
) -> FunctionsWork:
    """Built-in functions on a fleet. In a misfit, parallel functions gain nothing below four vCPUs and inputs come in two sizes, untold."""
    profiles = [replace(PROFILES[name], steps=misfit, cold_s=COLD[i % len(COLD)]) for i, name in enumerate(names)]
    drawn = drawn_calls(rng, fleet, profiles, calls=calls, load=load, misfit=misfit)
    return owned(fleet, profiles, drawn, rng)


def own_work(found: Read, how: Mapping[str, Any], rng: np.random.Generator | None) -> FunctionsWork:
    """The work of a user's file; calls, deadlines and what is hidden are drawn where the file does not say."""
    rng = np.random.default_rng(0) if rng is None else rng
    profiles, fleet = found.profiles, found.fleet
    memory = np.array([profile.memory_mb for profile in profiles])
    if found.calls is None:
        calls = drawn_calls(rng, fleet, profiles, calls=int(how["calls"]), load=float(how["load"]), tight=how["tight"], loose=how["loose"])
        return owned(fleet, profiles, calls, rng)
    c = found.calls
    order = np.argsort(c.arrival_s, kind="stable")
    function, arrival = c.function[order], c.arrival_s[order]
    arrival, zero = arrival - arrival[0], arrival[0]
    if c.deadline_s is None:
        deadline = arrival + rng.uniform(how["tight"], how["loose"], len(function)) * alone(profiles, fleet, fleet.sizes)[function]
    else:
        deadline = c.deadline_s[order] - zero
    size = np.ones(len(function)) if c.size is None else c.size[order]
    calls = with_hidden(rng, function, arrival, deadline, size, memory)
    return owned(fleet, profiles, calls, rng, sizes_known=c.told and bool(how["told"]))
