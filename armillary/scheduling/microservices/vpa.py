"""VPA: the 90th percentile of a decaying histogram of CPU use, times 1.15.

Samples of one minute enter a histogram whose buckets grow by 5 % from 0.01 cores on, with a weight of the quota (at least 0.1) that halves
every 24 hours. A replica starts with the recommendation. Every minute it is changed if its quota lies outside the bounds, which are the
50th and 95th percentiles with the same margin, widened where the history is short. Use never exceeds the quota, so a throttled service
cannot show how much it needs.

The recommender and updater of Kubernetes' Vertical Pod Autoscaler (autoscaling.k8s.io/v1, 2019) with their defaults. The history that it
would load from Prometheus is a day of the nominal load.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import parameter

from .application.application import Application
from .control.allocator import Allocator, within
from .simulation.window import Decision, Floats, Window

FIRST_CORES, GROWTH, MOST_CORES, HALF_LIFE_S, MARGIN, EVERY_S = 0.01, 1.05, 1000.0, 86_400.0, 0.15, 60
LEAST_WEIGHT, DAY_SAMPLES = 0.1, 1440
#: Bucket starts: 0.01·(1.05^k − 1)/0.05.
_BUCKETS = 1 + int(np.ceil(np.log(MOST_CORES * (GROWTH - 1) / FIRST_CORES + 1) / np.log(GROWTH)))
STARTS = FIRST_CORES * (GROWTH ** np.arange(_BUCKETS) - 1) / (GROWTH - 1)


class DecayingHistogram:
    """Weights of CPU use in buckets, whose age is told by powers of two."""

    def __init__(self, services: int) -> None:
        self.weights = np.zeros((services, len(STARTS)))
        self.samples = 0

    def add(self, cores: Floats, weight: Floats, at_s: float) -> None:
        """One sample per service at time `at_s`."""
        bucket = np.searchsorted(STARTS, cores, "right") - 1
        self.weights[np.arange(len(cores)), np.clip(bucket, 0, len(STARTS) - 1)] += weight * 2.0 ** (at_s / HALF_LIFE_S)
        self.samples += 1

    def percentile(self, share: float) -> Floats:
        """The upper end of the bucket in which the share of the weight is reached, [services]."""
        total = np.cumsum(self.weights, 1)
        bucket = (total < share * total[:, -1:] - 1e-12 * total[:, -1:]).sum(1)
        return STARTS[np.minimum(bucket + 1, len(STARTS) - 1)]


@dataclass(frozen=True)
class Vpa(Allocator):
    """Quotas by percentiles of past use."""

    percentile: float = parameter(0.9, "share of the samples that the quota covers", range=(0.01, 1.0))
    margin: float = parameter(MARGIN, "added to the percentile", range=(0.0, 10.0))
    history: bool = parameter(True, "whether a day of the nominal load is known at the start")

    def controller(self, app: Application) -> VpaController:
        """A controller for one run."""
        return VpaController(self, app)


class VpaController:
    """The histogram, and the use within the present minute."""

    def __init__(self, how: Vpa, app: Application) -> None:
        self.how, self.quotas = how, app.quotas.copy()
        self.histogram = DecayingHistogram(len(app.services))
        self._used, self._second = np.zeros(len(app.services)), 0
        if how.history:
            for minute in range(DAY_SAMPLES):
                rate = app.rate * (1 - 0.5 * np.cos(2 * np.pi * minute / DAY_SAMPLES))
                use = rate * app.visits * app.cpu_s / app.replicas
                self.histogram.add(use, np.maximum(self.quotas, LEAST_WEIGHT), 60.0 * (minute - DAY_SAMPLES))
            self.quotas = self._recommended(how.percentile)

    def _recommended(self, share: float) -> Floats:
        return within(self.histogram.percentile(share) * (1 + self.how.margin))

    def bounds(self) -> tuple[Floats, Floats]:
        """The quotas outside which a replica is changed."""
        days = max(self.histogram.samples / DAY_SAMPLES, 1e-9)
        low = self._recommended(0.5) * (1 + 0.001 / days) ** -2
        return low, self._recommended(0.95) * (1 + 1 / days)

    def decide(self, window: Window) -> Decision:
        """The quotas, looked at every minute."""
        self._used += window.used / window.replicas
        self._second += 1
        if self._second % EVERY_S == 0:
            self.histogram.add(self._used / EVERY_S, np.maximum(self.quotas, LEAST_WEIGHT), float(self._second))
            self._used[:] = 0
            low, high = self.bounds()
            self.quotas = np.where((self.quotas < low) | (self.quotas > high), self._recommended(self.how.percentile), self.quotas)
        return Decision(self.quotas)
