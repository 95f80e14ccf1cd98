"""A work: an application and requests that arrive, with the CPU seconds of every call, so that every technique meets the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.streams import stream

from .application.application import Application, Floats, Ints
from .application.built_in import built_in

LOADS = ("diurnal", "step", "flash", "sinusoid")
MOST_DRAWN, MOST_SECONDS = 50_000_000, 86_400
#: The share of training loads that are nearly idle.
QUIET = 0.125


@dataclass(frozen=True, eq=False)
class MicroservicesWork:
    """Requests in the order of arrival; the CPU seconds of request i's calls stand from `first[i]` on, in the order of its tree."""

    application: Application
    arrival_s: Floats
    type: Ints
    first: Ints
    demand_s: npt.NDArray[np.float32]
    seconds: int
    #: Requests per second that were meant, [seconds].
    rates: Floats

    @property
    def calls(self) -> int:
        """Calls of all requests."""
        return len(self.demand_s)


def rates_of(load: str, rng: np.random.Generator, seconds: int, mean: float) -> Floats:
    """Requests per second for each second, with the given mean, of a load shape whose times and heights are drawn.

    diurnal: a day in miniature, with one trough and one peak that is 2.5 to 4 times as high, and noise of 5 %.
    step: three times the base rate for a third of the time. flash: a crowd that brings four to six times the base rate within 5 to 15 s
    and leaves with a time constant of 20 to 40 s. sinusoid: a period of 40 to 90 s, up to 3 times as high, and noise of 20 %.
    """
    at = np.arange(seconds) + 0.5
    if load == "diurnal":
        height = rng.uniform(2.5, 4.0)
        shape = 1 + (height - 1) * 0.5 * (1 - np.cos(2 * np.pi * (at / seconds + rng.uniform(-0.15, 0.15))))
        shape = shape * rng.normal(1, 0.05, seconds).clip(0.8, 1.2)
    elif load == "step":
        begin = rng.uniform(0.2, 0.55) * seconds
        shape = np.where((at >= begin) & (at < begin + seconds / 3), 3.0, 1.0)
    elif load == "flash":
        begin, rise, fall = rng.uniform(0.2, 0.6) * seconds, rng.uniform(5, 15), rng.uniform(20, 40)
        height = rng.uniform(4, 6) - 1
        shape = 1 + height * np.where(at < begin + rise, ((at - begin) / rise).clip(0, 1), np.exp(-(at - begin - rise) / fall))
    elif load == "sinusoid":
        height, period = rng.uniform(2, 3), rng.uniform(40, 90)
        shape = 1 + (height - 1) * 0.5 * (1 + np.sin(2 * np.pi * (at / period + rng.random())))
        shape = shape * rng.normal(1, 0.2, seconds).clip(0.4, 1.6)
    else:
        raise unknown("load", load, LOADS)
    found: Floats = mean * shape / shape.mean()
    return found


def drawn(rng: np.random.Generator, app: Application, rates: Floats) -> MicroservicesWork:
    """Poisson arrivals at these rates, types by their shares, and lognormal CPU seconds."""
    rates = np.asarray(rates, np.float64)
    if not 1 <= len(rates) <= MOST_SECONDS or not np.isfinite(rates).all() or (rates < 0).any():
        raise InputError(f"found {len(rates):,} rates; expected 1 to {MOST_SECONDS:,} finite ones of at least 0", where="rates")
    sizes = np.diff(app.flat.root)
    expected = rates.sum() * float(app.shares @ sizes)
    if expected > MOST_DRAWN:
        raise InputError(f"found about {expected:,.0f} calls; expected at most {MOST_DRAWN:,} (fewer seconds or requests)", where="rates")
    counts = rng.poisson(rates)
    second = np.repeat(np.arange(len(rates)), counts)
    arrival = np.sort(second + rng.random(len(second)))
    return of_arrivals(rng, app, arrival, rng.choice(len(app.requests), len(arrival), p=app.shares / app.shares.sum()), rates)


def of_arrivals(rng: np.random.Generator, app: Application, arrival_s: Floats, type_: Ints, rates: Floats) -> MicroservicesWork:
    """Requests at given times and of given types, with CPU seconds drawn."""
    flat = app.flat
    type_ = np.asarray(type_, np.int64)
    sizes = np.diff(flat.root)[type_]
    first = np.concatenate(([0], np.cumsum(sizes)[:-1])) if len(sizes) else np.zeros(0, np.int64)
    total = int(sizes.sum())
    service = flat.service[np.repeat(flat.root[type_] - first, sizes) + np.arange(total)]
    cv = np.array([one.cv for one in app.services])
    sigma = np.sqrt(np.log1p(cv**2)).astype(np.float32)
    mu = np.log(app.cpu_s).astype(np.float32) - sigma**2 / 2
    demand = np.exp(mu[service] + sigma[service] * rng.standard_normal(total, np.float32))
    return MicroservicesWork(app, np.ascontiguousarray(arrival_s), type_, first.astype(np.int64), demand, len(rates), rates)


def made(rng: np.random.Generator, facts: Mapping[str, Any]) -> MicroservicesWork:
    """A built-in work: application, load, seconds, mean rate; `shuffled` puts the seconds of the load in random order."""
    name = str(facts["application"])
    if name.startswith("drawn-"):
        from .application.built_in import drawn as drawn_application

        app = drawn_application(rng, int(name.removeprefix("drawn-")))
    else:
        app = built_in(name)
    rates = rates_of(str(facts["load"]), rng, int(facts["seconds"]), float(facts["rate"]))
    return drawn(rng, app, rng.permutation(rates) if facts.get("shuffled") else rates)


def training_rates(app: Application, rng: np.random.Generator, seconds: int) -> Floats:
    """A load of any shape with a mean from 0.6 to 1.5 times the owner's rate; one in eight is nearly idle, and then idle."""
    rates = rates_of(LOADS[int(rng.integers(len(LOADS)))], rng, seconds, app.rate * rng.uniform(0.6, 1.5))
    if rng.random() < QUIET:
        rates = rates * rng.uniform(0, 0.1)
        rates[seconds // 2 :] = 0
    return rates


def training_work(app: Application, seed: int, number: int, seconds: int = 300) -> MicroservicesWork:
    """Training work number so-and-so."""
    rng = stream(seed, "scheduling/microservices", "train", str(number))
    return drawn(rng, app, training_rates(app, rng, seconds))
