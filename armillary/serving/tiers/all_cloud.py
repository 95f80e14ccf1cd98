"""Everything runs on the last tier, as cloud providers sell it (EdgeShard, arXiv 2405.14371, 2024, calls this Cloud-Only)."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import NotForThisCase

from .nodes.stage_cost import BlockCosts, Mix
from .planning.plan import TierPlan, plan_of
from .planning.technique import RESERVE_TOKENS, TierTechnique
from .simulation.dispatch import LeastWork
from .simulation.serving import Dispatcher


@dataclass(frozen=True)
class AllCloud(TierTechnique):
    """The whole model is on every node of the last tier; a request goes to the one with the least work. Only token numbers cross links."""

    def cut(self, costs: BlockCosts, mix: Mix) -> TierPlan:
        """Returns all blocks go to the last tier."""
        last = costs.hierarchy.tiers[-1]
        if costs.memory(RESERVE_TOKENS).sum() > last.memory:
            raise NotForThisCase(f"{costs.model.name} does not fit on one node of {last.name}")
        return plan_of(costs, (0,) * (len(costs.hierarchy) - 1))

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Returns a dispatcher by least work."""
        return LeastWork(costs, plan, 1.0, 0.0)
