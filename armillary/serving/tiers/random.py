"""Equal numbers of blocks, nodes at random; what queueing theory compares with. Mitzenmacher, The power of two choices, 1996."""

from __future__ import annotations

from dataclasses import dataclass

from .dispatch import Draws
from .gpipe import GPipe
from .plan import TierPlan
from .simulation import Dispatcher
from .stage_cost import BlockCosts, Mix


@dataclass(frozen=True)
class Random(GPipe):
    """GPipe's split; every request draws its node in every tier."""

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """At random."""
        return Draws(costs.hierarchy, self.rng)
