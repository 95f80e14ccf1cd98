"""What a technique sees of one second, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Window:
    """One control window; arrays are by service unless they say otherwise."""

    #: Cores that were used on average, and cores that are there now: replicas times quota.
    used: Floats
    cores: Floats
    #: Cores per replica, and replicas that are ready.
    quotas: Floats
    replicas: Ints
    #: Calls that wait for a thread at the end of the window, and the mean share of threads that were taken.
    queue: Floats
    occupancy: Floats
    #: Median and 99th percentile of the time from a call's arrival to its answer, in seconds (0 if none was answered).
    p50_s: Floats
    p99_s: Floats
    #: Calls per second that arrived.
    rate: Floats
    #: End-to-end percentiles by request type in seconds, [types] (0 if none was answered), failed requests counting as the timeout.
    type_p50_s: Floats
    type_p99_s: Floats
    #: Percentiles of latency over the type's objective, over all requests; failed ones count as the timeout over the objective.
    p50_slo: float
    p99_slo: float
    #: Requests that arrived, were answered in time, and failed.
    arrived: int
    answered: int
    failed: int
    seconds: float = 1.0

    @property
    def violated(self) -> bool:
        """Whether the 99th percentile was above the objective."""
        return self.p99_slo > 1.0


@dataclass(frozen=True, eq=False)
class Decision:
    """Cores per replica of each service and, where it decides them, replicas; with the promised probability of a violation next."""

    quotas: Floats
    replicas: Ints | None = None
    promise: float | None = None
