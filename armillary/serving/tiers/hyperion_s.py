"""Hyperion's dispatch on GPipe's cut (the ablation of arXiv 2511.14450, 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .gpipe import GPipe
from .nodes.stage_cost import BlockCosts, Mix
from .planning.plan import TierPlan
from .simulation.dispatch import ByArts
from .simulation.serving import Dispatcher


@dataclass(frozen=True)
class HyperionS(GPipe):
    """Dispatches by ARTS on GPipe's cut."""

    alpha: float = parameter(0.3, "the weight of the newest observation of a node's speed", range=(0.01, 1.0))
    staleness_s: float = parameter(0.0, "the seconds after which the state of a node's queue is known", range=(0.0, 60.0))

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Dispatches by ARTS."""
        return ByArts(costs, plan, self.alpha, self.staleness_s)
