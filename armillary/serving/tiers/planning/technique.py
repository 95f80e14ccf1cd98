"""The interface of every technique of this arena: a cut before any request arrives, and a dispatcher."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary import cluster
from armillary.arena import Technique
from armillary.cluster import Cluster
from armillary.llm.model.shapes import Model

from ..nodes.hierarchy import Hierarchy
from ..nodes.stage_cost import BlockCosts, Mix
from ..simulation.serving import Dispatcher
from .bsdp import bsdp
from .plan import TierPlan, plan_of

#: The number of cached tokens for which a plan leaves room on every node.
RESERVE_TOKENS = 4096


@dataclass(frozen=True)
class TierTechnique(Technique):
    """Cuts a model over tiers and sends requests through them."""

    def cut(self, costs: BlockCosts, mix: Mix) -> TierPlan:
        """Assigns blocks to each tier."""
        raise NotImplementedError

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Returns the dispatcher that chooses the nodes."""
        raise NotImplementedError

    def plan(
        self, model: str | Path | Model, on: str | Cluster | Hierarchy = "tiers-3", *, prompt: float = 128, output: float = 128
    ) -> TierPlan:
        """Cuts a model (a `config.json`, a preset) over the tiers of a cluster, for requests of these numbers of tokens."""
        of = model if isinstance(model, Model) else Model.find(model)
        tiers = on if isinstance(on, Hierarchy) else Hierarchy.of_cluster(on if isinstance(on, Cluster) else cluster.find(on))
        return self.cut(BlockCosts(of, tiers), Mix(prompt, output))


def even_cut(costs: BlockCosts, cost: np.ndarray) -> TierPlan:
    """Returns the most even split of `cost` [blocks] over the tiers that memory allows, regardless of their speed."""
    budget = np.array([tier.memory for tier in costs.hierarchy.tiers])
    memory = costs.memory(RESERVE_TOKENS)
    sums = np.cumsum(cost)
    # Where a boundary falls into a block, the block goes to the side that has more of it.
    cuts = [int(np.searchsorted(sums - cost / 2, sums[-1] * j / len(budget))) for j in range(1, len(budget))]
    edges = [0, *cuts, costs.blocks]
    if any(hi <= lo or memory[lo:hi].sum() > room for lo, hi, room in zip(edges, edges[1:], budget, strict=False)):
        cuts = list(bsdp(cost, memory, np.ones(len(budget)), budget)[0])
    return plan_of(costs, cuts)
