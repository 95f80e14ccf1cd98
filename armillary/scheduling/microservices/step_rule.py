"""Step rule: every second, a service above 70 % of its quota gets 30 % more, above 50 % it gets 10 % more, and below 30 % it gives 10 %.

A rule of thumb on CPU utilisation alone. A service that waits for a slow one below it uses less CPU, so the rule takes its cores away.

Step scaling of this kind is a baseline of Sinan: ML-Based and QoS-Aware Resource Management for Cloud Microservices, ASPLOS 2021; the
thresholds are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import parameter

from .application.application import Application
from .control.allocator import Allocator, within
from .simulation.window import Decision, Floats, Window


@dataclass(frozen=True)
class StepRule(Allocator):
    """Quotas by utilisation, in steps."""

    hot: float = parameter(0.7, "utilisation above which a quota grows by 30 %", range=(0.0, 1.0))
    warm: float = parameter(0.5, "utilisation above which a quota grows by 10 %", range=(0.0, 1.0))
    cold: float = parameter(0.3, "utilisation below which a quota shrinks by 10 %", range=(0.0, 1.0))

    def controller(self, app: Application) -> StepRule:
        """The rule itself, which has no state."""
        return self

    def decide(self, window: Window) -> Decision:
        """The quotas of the next second."""
        return Decision(within(window.quotas * self.factors(window)))

    def factors(self, window: Window) -> Floats:
        """By how much each quota changes."""
        use = window.used / window.cores
        return np.where(use > self.hot, 1.3, np.where(use > self.warm, 1.1, np.where(use < self.cold, 0.9, 1.0)))
