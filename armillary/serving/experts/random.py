"""Experts are placed at random, equally many per device, and requests go in turn: GShard's layout (2021) with shuffled numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .planning.placement import ExpertPlacement
from .planning.technique import ExpertTechnique, check_devices
from .routing.trace import RoutingTrace


@dataclass(frozen=True)
class Random(ExpertTechnique):
    """Uses another order in every layer."""

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """Places experts by a permutation."""
        check_devices(trace.experts, devices)
        order = np.array([self.rng.permutation(trace.experts) for _ in range(trace.layers)])
        return ExpertPlacement.of_devices(order * devices // trace.experts, devices)
