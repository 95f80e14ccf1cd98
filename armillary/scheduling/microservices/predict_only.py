"""Predict only: DDRM's predictor with a greedy rule, and no learned policy.

If the present quotas are safe, as many services as stay safe give 10 %, those first whose quotas the risk depends on least. Otherwise
services are raised in the order of the slope until the risk is at most 0.1. This is the first stage of DDRM, IEEE CLUSTER 2025; the greedy
rule is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import parameter

from .application.application import Application
from .control.allocator import Allocator
from .control.learned import LearnedController
from .ddrm import Ddrm


@dataclass(frozen=True)
class PredictOnly(Allocator):
    """The greedy rule over the predictor."""

    p_max: float = parameter(0.1, "risk of a violation that is accepted", range=(0.0, 1.0))
    cold_start: bool = parameter(True, "whether an application without a model gets a predictor of its own, trained on first use")

    def controller(self, app: Application) -> LearnedController:
        """A controller for one run."""
        return Ddrm(decider=False, shield=False, p_max=self.p_max, cold_start=self.cold_start).controller(app)
