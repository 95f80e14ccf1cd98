"""The work of keep-alive: invocations, a carbon grid, λ, and what the platform knows from the training day."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.energy import JOULES_PER_KWH, Carbon, grid, idle_watts
from armillary.scheduling.faas import Invocations, Played, Population, drawn, play, population, shadow_gaps, shuffled, streamed
from armillary.streams import stream

from .simulation.reuse import histogram

Floats = npt.NDArray[np.float64]
#: The reference: Huawei's keep-alive in seconds.
REFERENCE_S = 60.0
#: Functions and invocations of the built-in training day.
TRAINING = (500, 200_000)


@dataclass(frozen=True)
class Knowledge:
    """What static-60 cost on the training day, and how the gaps of all functions were distributed on it."""

    #: L̄ and C̄: cold-start seconds and grams of idle carbon, per invocation.
    latency_s: float
    carbon_g: float
    #: The shares of the bins of gaps, [25].
    prior: Floats
    #: The mean carbon intensity in g/kWh.
    intensity: float

    @staticmethod
    def of(trace: Invocations, carbon: Carbon) -> Knowledge:
        """What a training trace says. Means are slightly above 0 at least, because they are divisors."""
        played = play(trace, REFERENCE_S, series=carbon.series)
        n = max(1, len(trace))
        grams = float(played.weighted @ idle_watts(trace.vcpu, trace.memory_gb)) / JOULES_PER_KWH
        gaps = shadow_gaps(trace)
        span = max(trace.stop_s - trace.start_s, 1e-9)
        mean = float(carbon.integral(trace.start_s + span) - carbon.integral(trace.start_s)) / span
        return Knowledge(
            max(1e-6, float(played.cold @ trace.cold_s) / n), max(1e-9, grams / n), histogram(gaps[np.isfinite(gaps)]), mean
        )  # fmt: skip


@dataclass(frozen=True)
class Stream:
    """Functions that are drawn in blocks, for work that does not fit into memory."""

    people: Population
    seed: int
    length_s: float
    most: int

    def __iter__(self) -> Iterator[Invocations]:
        return streamed(stream(self.seed, "keepalive", "streamed"), self.people, length_s=self.length_s, most=self.most)


@dataclass(frozen=True)
class KeepAliveWork:
    """Invocations on a grid. λ weighs idle carbon against the latency of cold starts."""

    trace: Invocations | Stream
    carbon: Carbon
    lam: float
    knowledge: Knowledge
    reuse: str = "mru"
    startup: str = "beside"
    #: Earlier invocations are played, so that policies get to know the functions, and not counted.
    count_from_s: float = -math.inf
    #: What a learned technique may train on in this work: the first part of a user's trace, or None.
    history: Invocations | None = None
    #: Names the history for the cache of trained models.
    history_digest: str = ""

    def parts(self) -> Iterator[Invocations]:
        """The trace, in blocks of functions where it is streamed."""
        if isinstance(self.trace, Invocations):
            yield self.trace
        else:
            yield from self.trace

    def watts(self, trace: Invocations) -> Floats:
        """Watts at the meter of an idle pod of each function."""
        found: Floats = idle_watts(trace.vcpu, trace.memory_gb)
        return found

    def facts(self) -> tuple[Floats, Floats, Floats]:
        """Cold start in seconds, watts and GB of every function."""
        if isinstance(self.trace, Invocations):
            return self.trace.cold_s, self.watts(self.trace), self.trace.memory_gb
        people = self.trace.people
        watts: Floats = idle_watts(people.vcpu, people.memory_gb)
        return people.cold_s, watts, people.memory_gb

    def at(self, lam: float) -> KeepAliveWork:
        """The same work at another λ."""
        return replace(self, lam=lam)


@dataclass(frozen=True)
class Counted:
    """What a play comes to, over all functions."""

    invocations: int
    cold_starts: int
    #: Seconds of cold starts, seconds of cold starts and durations, and seconds, GB-seconds and grams of idling.
    cold_s: float
    latency_s: float
    idle_s: float
    idle_gb_s: float
    carbon_g: float
    latency_p99_s: float
    #: The mean cold start over functions.
    one_cold_s: float

    @staticmethod
    def of(work: KeepAliveWork, played: Played) -> Counted:
        """The sums over functions."""
        cold, watts, memory = work.facts()
        return Counted(
            int(played.invocations.sum()), int(played.cold.sum()), float(played.cold @ cold), float(played.latency_s.sum()),
            float(played.idle_s.sum()), float(played.idle_s @ memory), float(played.weighted @ watts) / JOULES_PER_KWH,
            played.quantile(0.99), float(cold.mean()),
        )  # fmt: skip

    @property
    def units(self) -> tuple[float, float]:
        """What costs are divided by if this is the reference: cold-start seconds, at least those of one cold start, and grams."""
        return max(self.cold_s, self.one_cold_s, 1e-12), max(self.carbon_g, 1e-12)

    def cost(self, lam: float, reference: Counted) -> float:
        """(1 − λ)·cold-start seconds + λ·idle carbon, both over the reference's."""
        seconds, grams = reference.units
        return (1 - lam) * self.cold_s / seconds + lam * self.carbon_g / grams


def training_day(name: str, functions: int, most: int) -> tuple[Invocations, Carbon]:
    """The training day of a grid: other functions and another wind than in any test."""
    rng = stream(0, "keepalive", "train", name)
    people = population(rng, functions)
    return drawn(rng, people, most=most), grid(name, rng)


@functools.lru_cache(maxsize=4)
def trained_knowledge(name: str, functions: int, most: int) -> Knowledge:
    """What the training day of a grid says."""
    return Knowledge.of(*training_day(name, functions, most))


def built_in(
    rng: np.random.Generator, *, grid_name: str, lam: float, functions: int, most: int, length_s: float, misfit: bool = False,
    known: tuple[str, int, int] | None = None, seed: int = 0,
) -> KeepAliveWork:  # fmt: skip
    """The built-in work on a grid. A misfit has each function's gaps in shuffled order; `known` may name another grid.

    known: (grid, functions, invocations) of the training day; by default those of the work itself.
    """
    people = population(rng, functions)
    carbon = grid(grid_name, rng, hours=int(length_s // 3600) + 24)
    knowledge = trained_knowledge(*(known or (grid_name, functions, most)))
    if length_s > 2 * 86400:
        if misfit:
            raise InputError(f"found a misfit of {length_s / 86400:g} days; expected at most 2, because longer work is streamed")
        return KeepAliveWork(Stream(people, seed, length_s, most), carbon, lam, knowledge)
    trace = drawn(rng, people, length_s=length_s, most=most)
    return KeepAliveWork(shuffled(rng, trace) if misfit else trace, carbon, lam, knowledge)


def own_work(trace: Invocations, carbon: Carbon, how: Any, digest: str = "") -> KeepAliveWork:
    """A user's trace: the first part is what the platform knows, the last part is counted.

    Without any invocation in the first part, the platform knows the built-in training day on the flat grid.
    """
    start, stop = trace.start_s, trace.stop_s
    history = trace.until(start + how["history"] * (stop - start))
    begin = start + (how["history"] + how["validation"]) * (stop - start)
    known = Knowledge.of(history, carbon) if len(history) else trained_knowledge("flat", *TRAINING)
    return KeepAliveWork(trace, carbon, how["lambda"], known, how["reuse"], how["startup"], begin, history, digest)
