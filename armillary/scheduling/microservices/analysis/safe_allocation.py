"""The minimum safe allocation: the fewest cores with which the simulator holds the objective, without any learning.

The shape is given (each service's largest use of any second, or the caller's quotas), and the smallest factor on it is found by bisection.
Several independent draws of the same load give a confidence interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.microservices.application.application import MOST_CORES, Application
from armillary.scheduling.microservices.control.allocator import Fixed, within
from armillary.scheduling.microservices.simulation.play import play
from armillary.scheduling.microservices.simulation.window import Floats
from armillary.scheduling.microservices.workload import MicroservicesWork, drawn
from armillary.streams import stream

#: The share of violated windows that is allowed.
ALLOWED = 0.01
STEPS = 9
LEAST_FACTOR, MOST_FACTOR = 0.125, 8.0


def peak_use(work: MicroservicesWork) -> Floats:
    """The largest use of each service in any second, in cores per replica, with the most cores that there can be."""
    app = work.application
    most = np.full(len(app.services), MOST_CORES)
    played = play(work, Fixed(most), quotas=most)
    found: Floats = np.max([window.used for window in played.windows], 0) / app.replicas
    return np.maximum(found, 1e-3)


def factor_of(work: MicroservicesWork, shape: Floats, allowed: float = ALLOWED) -> float:
    """The smallest factor from 1/8 to 8 on `shape` with which at most `allowed` of the windows are violated; 8 if none does."""

    def holds(factor: float) -> bool:
        quotas = within(shape * factor)
        return play(work, Fixed(quotas), quotas=quotas).violation <= allowed

    low, high = LEAST_FACTOR, MOST_FACTOR
    if not holds(high):
        return high
    for _ in range(STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@dataclass(frozen=True, eq=False)
class SafeAllocation:
    """Cores per replica of each service by name, cores in all, and the 95 % interval of the latter over draws."""

    quotas: dict[str, float]
    cores: float
    low: float
    high: float
    draws: int
    #: The draws in which no allocation of this shape held the objective; they count with the largest one.
    failed: int


def safe_allocation(
    app: Application, rates: Floats | float, *, draws: int = 8, seconds: int = 200, seed: int = 0, shape: Sequence[float] | None = None
) -> SafeAllocation:  # fmt: skip
    """The smallest fixed allocation that keeps the objective at these rates (requests per second, for each second or constant).

    The interval is Student's, over independent draws of arrivals and CPU times; the quotas are those of the draw that needed most.
    """
    from scipy.stats import t as student

    if draws < 2:
        raise InputError(f"found {draws} draws; expected at least 2, for an interval", where="draws")
    every = np.full(seconds, float(rates)) if np.ndim(rates) == 0 else np.asarray(rates, np.float64)
    totals, most, found, failed = [], -1.0, np.zeros(len(app.services)), 0
    for k in range(draws):
        work = drawn(stream(seed, "scheduling", "microservices", "safe allocation", str(k)), app, every)
        base = peak_use(work) if shape is None else np.asarray(shape, np.float64)
        factor = factor_of(work, base)
        failed += factor == MOST_FACTOR
        quotas = within(base * factor)
        totals.append(float((quotas * app.replicas).sum()))
        if totals[-1] > most:
            most, found = totals[-1], quotas
    mean, spread = float(np.mean(totals)), float(np.std(totals, ddof=1))
    half = float(student.ppf(0.975, draws - 1)) * spread / float(np.sqrt(draws))
    return SafeAllocation(dict(zip(app.names, np.round(found, 3).tolist())), mean, mean - half, mean + half, draws, int(failed))
