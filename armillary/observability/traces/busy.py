"""The share of time in which any kernel runs, which is what nvidia-smi shows as utilisation.

A kernel that waits for others or for a collective counts as busy. What is left is put down to the host, which does not feed the device, and
devices that are less busy than the busiest one are taken to be short of work.

GPU utilisation of NVIDIA's System Management Interface, as of 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .analysis.intervals import either
from .analysis.lost import activities
from .analysis.regions import region_of
from .attribution import Analyst, Attribution
from .run.model import Run


@dataclass(frozen=True)
class Busy(Analyst):
    """Utilisation per device."""

    def attribute(self, run: Run) -> Attribution:
        """What idle time the utilisation shows: that of the busiest device is the host's, what others lack beyond it is imbalance."""
        elapsed = max(1.0, float(region_of(run, None).device.length))
        busy = np.array([either(one.computing, one.communicating).length for one in activities(run)], float) / elapsed
        if not len(busy):
            return Attribution(elapsed, {}, 0.0)
        most = float(busy.max())
        return Attribution(elapsed, {"imbalance": most - float(busy.mean()), "host": 1.0 - most}, float(busy.mean()))
