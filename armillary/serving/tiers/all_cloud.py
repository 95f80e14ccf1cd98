"""Everything on the last tier: what cloud providers sell (EdgeShard, arXiv 2405.14371, 2024, compares with it as Cloud-Only)."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import NotForThisCase

from .dispatch import LeastWork
from .plan import TierPlan, plan_of
from .simulation import Dispatcher
from .stage_cost import BlockCosts, Mix
from .technique import RESERVE_TOKENS, TierTechnique


@dataclass(frozen=True)
class AllCloud(TierTechnique):
    """The whole model on every node of the last tier, requests to the one with the least work; only token numbers cross the links."""

    def cut(self, costs: BlockCosts, mix: Mix) -> TierPlan:
        """No block below the last tier."""
        last = costs.hierarchy.tiers[-1]
        if costs.memory(RESERVE_TOKENS).sum() > last.memory:
            raise NotForThisCase(f"{costs.model.name} does not fit on one node of {last.name}")
        return plan_of(costs, (0,) * (len(costs.hierarchy) - 1))

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Least work."""
        return LeastWork(costs, plan, 1.0, 0.0)
