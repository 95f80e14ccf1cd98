"""Equal numbers of blocks on nodes drawn at random, the baseline of queueing theory. Mitzenmacher, The power of two choices, 1996."""

from __future__ import annotations

from dataclasses import dataclass

from .gpipe import GPipe
from .nodes.stage_cost import BlockCosts, Mix
from .planning.plan import TierPlan
from .simulation.dispatch import Draws
from .simulation.serving import Dispatcher


@dataclass(frozen=True)
class Random(GPipe):
    """GPipe's split; every request draws its node in every tier."""

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Draws a node at random."""
        return Draws(costs.hierarchy, self.rng)
