"""Sem-MoE's scheduling alone: requests and tokens go where their experts are, and experts stay in index order.

Semantic Parallelism: Redefining Efficient MoE Inference via Model-Data Co-Scheduling, arXiv 2503.04398, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .planning.placement import ExpertPlacement
from .planning.technique import ExpertTechnique, check_devices
from .routing.trace import RoutingTrace
from .sem_moe import PREDICTABLE, predictability, scored


@dataclass(frozen=True)
class SemMoEData(ExpertTechnique):
    """Requests and tokens move, experts do not."""

    by_score: ClassVar[bool] = True

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """Returns index order with scores."""
        check_devices(trace.experts, devices)
        usual = ExpertPlacement.index_order(trace.layers, trace.experts, devices)
        return scored(usual, trace, predictability(trace) >= PREDICTABLE)
