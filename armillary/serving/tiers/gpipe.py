"""GPipe's split: the same number of blocks for every tier, nodes in turn.

GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .dispatch import Turns
from .plan import TierPlan
from .simulation import Dispatcher
from .stage_cost import BlockCosts, Mix
from .technique import TierTechnique, even_cut


@dataclass(frozen=True)
class GPipe(TierTechnique):
    """As many blocks on every tier as memory allows to be equal; requests go to the nodes of a tier in turn (Huang et al., 2019)."""

    def cut(self, costs: BlockCosts, mix: Mix) -> TierPlan:
        """Equal numbers of blocks."""
        return even_cut(costs, np.ones(costs.blocks))

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """In turn."""
        return Turns(costs.hierarchy)
