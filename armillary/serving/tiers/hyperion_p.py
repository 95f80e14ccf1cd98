"""Hyperion's cut without its dispatch: requests go to nodes in turn (the ablation of arXiv 2511.14450, 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim

from .hyperion import Hyperion
from .nodes.stage_cost import BlockCosts, Mix
from .planning.plan import TierPlan
from .simulation.dispatch import Turns
from .simulation.serving import Dispatcher


@dataclass(frozen=True)
class HyperionP(Hyperion):
    """Cuts by BSDP; requests go to nodes in turn."""

    claims: ClassVar[tuple[Claim, ...]] = ()

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Requests go to the nodes of a tier in turn."""
        return Turns(costs.hierarchy)
