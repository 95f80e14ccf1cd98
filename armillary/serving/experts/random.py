"""Experts at random, equally many on every device, requests in turn: GShard's layout (2021) with the numbers shuffled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .planning.placement import ExpertPlacement
from .planning.technique import ExpertTechnique, check_devices
from .routing.trace import RoutingTrace


@dataclass(frozen=True)
class Random(ExpertTechnique):
    """Another order in every layer."""

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """By a permutation."""
        check_devices(trace.experts, devices)
        order = np.array([self.rng.permutation(trace.experts) for _ in range(trace.layers)])
        return ExpertPlacement.of_devices(order * devices // trace.experts, devices)
