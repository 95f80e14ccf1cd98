"""Experts are placed in the order of their numbers and requests go to devices in turn, as engines do by default since GShard.

GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding, ICLR 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from .planning.placement import ExpertPlacement
from .planning.technique import ExpertTechnique, check_devices
from .routing.trace import RoutingTrace


@dataclass(frozen=True)
class Vanilla(ExpertTechnique):
    """Learns nothing."""

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """Returns index order."""
        check_devices(trace.experts, devices)
        return ExpertPlacement.index_order(trace.layers, trace.experts, devices)
