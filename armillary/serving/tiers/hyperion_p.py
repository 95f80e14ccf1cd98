"""Hyperion's cut without its dispatch: nodes in turn (the ablation of arXiv 2511.14450, 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim

from .dispatch import Turns
from .hyperion import Hyperion
from .plan import TierPlan
from .simulation import Dispatcher
from .stage_cost import BlockCosts, Mix


@dataclass(frozen=True)
class HyperionP(Hyperion):
    """BSDP alone."""

    claims: ClassVar[tuple[Claim, ...]] = ()

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """In turn."""
        return Turns(costs.hierarchy)
