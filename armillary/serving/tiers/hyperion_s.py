"""Hyperion's dispatch on GPipe's cut (the ablation of arXiv 2511.14450, 2025)."""

from __future__ import annotations

from dataclasses import dataclass, field

from .dispatch import ByArts
from .gpipe import GPipe
from .plan import TierPlan
from .simulation import Dispatcher
from .stage_cost import BlockCosts, Mix


@dataclass(frozen=True)
class HyperionS(GPipe):
    """ARTS alone."""

    alpha: float = field(default=0.3, metadata={"doc": "weight of the newest observation of a node's speed", "range": (0.01, 1.0)})
    staleness_s: float = field(default=0.0, metadata={"doc": "how late the nodes' queues are known, seconds", "range": (0.0, 60.0)})

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """By ARTS."""
        return ByArts(costs, plan, self.alpha, self.staleness_s)
