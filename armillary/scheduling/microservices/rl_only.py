"""RL only: DDRM's policy without its shield.

The policy sees the predictor's tokens and probabilities, and nothing stops it. This is the second stage of DDRM, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import parameter

from .application.application import Application
from .control.allocator import Allocator
from .control.learned import LearnedController
from .ddrm import Ddrm


@dataclass(frozen=True)
class RlOnly(Allocator):
    """The learned policy alone."""

    cold_start: bool = parameter(True, "whether an application without a model gets a predictor of its own, trained on first use")

    def controller(self, app: Application) -> LearnedController:
        """A controller for one run."""
        return Ddrm(shield=False, cold_start=self.cold_start).controller(app)
