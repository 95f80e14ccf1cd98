"""Deepest first: when latency nears the objective, raise the deepest service that is full, because the ones above only wait for it.

If the end-to-end 99th percentile is above 0.8 of the objective, the deepest service with full threads or a queue gets 30 % more, or the
busiest one if none is full. Otherwise the least used service gives 10 %. The rule knows backpressure and learns nothing.

The rule is ours. How backpressure misleads rules on utilisation is shown in An Open-Source Benchmark Suite for Microservices and Their
Hardware-Software Implications for Cloud & Edge Systems, ASPLOS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import parameter

from .application.application import Application
from .control.allocator import Allocator, within
from .simulation.window import Decision, Window


@dataclass(frozen=True)
class DeepestFirst(Allocator):
    """Quotas by depth and fullness."""

    near: float = parameter(0.8, "share of the objective above which cores are added", range=(0.01, 10.0))
    full: float = parameter(0.9, "share of the threads from which a service counts as full", range=(0.01, 1.0))

    def controller(self, app: Application) -> DeepestController:
        """A controller for one run."""
        return DeepestController(self, app)


class DeepestController:
    """The rule, with the depth of each service."""

    def __init__(self, how: DeepestFirst, app: Application) -> None:
        self.how, self.levels = how, app.levels

    def decide(self, window: Window) -> Decision:
        """One service is changed."""
        use, quotas = window.used / window.cores, window.quotas.copy()
        if window.p99_slo > self.how.near:
            full = (window.occupancy >= self.how.full) | (window.queue > 0)
            # Of equally deep ones, the busiest; if none is full, the busiest of all.
            chosen = int(np.lexsort((use, np.where(full, self.levels, -1)))[-1])
            quotas[chosen] *= 1.3
        else:
            quotas[int(np.argmin(np.where(quotas > within(quotas * 0.9), use, np.inf)))] *= 0.9
        return Decision(within(quotas))
