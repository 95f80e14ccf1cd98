"""GPipe's split gives every tier the same number of blocks, and requests go to its nodes in turn.

GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .nodes.stage_cost import BlockCosts, Mix
from .planning.plan import TierPlan
from .planning.technique import TierTechnique, even_cut
from .simulation.dispatch import Turns
from .simulation.serving import Dispatcher


@dataclass(frozen=True)
class GPipe(TierTechnique):
    """Tiers hold equal numbers of blocks as far as memory allows; requests go to the nodes of a tier in turn (Huang et al., 2019)."""

    def cut(self, costs: BlockCosts, mix: Mix) -> TierPlan:
        """Returns every tier gets the same number of blocks."""
        return even_cut(costs, np.ones(costs.blocks))

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Requests go to the nodes of a tier in turn."""
        return Turns(costs.hierarchy)
