"""What the predictor sees: ten numbers per service and window for five windows, and three about the quotas that are proposed.

All numbers are ratios or logarithms within a few units, so nothing is standardised, and none says which service it belongs to.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from armillary.scheduling.microservices.application.application import Application
from armillary.scheduling.microservices.simulation.window import Floats, Window

Floats32 = npt.NDArray[np.float32]
#: Windows that are remembered, numbers of each, and numbers about a proposal.
HISTORY, FACTS, PROPOSED = 5, 10, 3
#: What an action does to a quota.
LEVELS = np.array([0.8, 0.9, 1.0, 1.1, 1.3])
STAY = 2


class Observed:
    """The last five windows of one application, as numbers."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self._rates: deque[Floats] = deque(maxlen=HISTORY)
        self._facts: deque[Floats32] = deque(maxlen=HISTORY)
        self.offered = np.zeros(len(app.services))
        self._slo_s = float(app.slo_s.min())

    def add(self, window: Window) -> None:
        """Takes one more window in."""
        self._rates.append(window.rate)
        self.window = window
        #: Cores' worth of work that arrived.
        self.offered = window.rate * self.app.cpu_s
        facts = np.empty((len(window.used), FACTS), np.float32)
        facts[:, 0] = window.used / window.cores
        facts[:, 1] = np.log2(window.cores) / 4
        facts[:, 2] = np.log1p(window.queue) / 4
        facts[:, 3] = window.occupancy
        facts[:, 4] = np.log1p(20 * np.minimum(window.p50_s / self._slo_s, 20)) / 3
        facts[:, 5] = np.log1p(20 * np.minimum(window.p99_s / self._slo_s, 20)) / 3
        facts[:, 6] = np.minimum(self.offered / window.cores, 3)
        facts[:, 7] = np.log1p(4 * min(window.p99_slo, 20)) / 2
        facts[:, 8] = np.log1p(4 * min(window.p50_slo, 20)) / 2
        facts[:, 9] = self.trend
        self._facts.append(facts)

    @property
    def trend(self) -> Floats:
        """How far the rate of each service is above its mean over the windows, as a share of the mean, at most 2."""
        mean = np.mean(self._rates, 0)
        return np.clip((self._rates[-1] - mean) / np.maximum(mean, 1.0), -2, 2)

    @property
    def load_trend(self) -> float:
        """The same for all calls together."""
        total = np.array([rate.sum() for rate in self._rates])
        return float(np.clip((total[-1] - total.mean()) / max(total.mean(), 1.0), -2, 2))

    def history(self) -> Floats32:
        """[services, windows, facts]; what is missing at the start is what came first."""
        known = list(self._facts)
        return np.stack([known[0]] * (HISTORY - len(known)) + known, 1)

    def proposed(self, quotas: Floats) -> Floats32:
        """[…, services, 3] of proposed cores per replica […, services]."""
        cores = quotas * self.window.replicas
        change = np.log(quotas / self.window.quotas) / np.log(1.3)
        return np.stack([change, np.minimum(self.offered / cores, 3), np.log2(cores) / 4], -1).astype(np.float32)

    def slope_of(self, quotas: Floats, slope: Floats) -> Floats:
        """The derivative with respect to log quotas [services] of something whose slope by `proposed` is [services, 3]."""
        cores = quotas * self.window.replicas
        load = self.offered / cores
        found: Floats = slope[:, 0] / np.log(1.3) - np.where(load < 3, slope[:, 1] * load, 0.0) + slope[:, 2] / (4 * np.log(2))
        return found
