"""EdgeShard finds the cut with the least latency of one request by dynamic programming; the nodes of a pipeline never change.

EdgeShard: Efficient LLM Inference via Collaborative Edge Computing, arXiv 2405.14371, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError

from .nodes.stage_cost import BlockCosts, Mix
from .planning.plan import TierPlan, plan_of
from .planning.technique import RESERVE_TOKENS, TierTechnique
from .simulation.dispatch import Fixed
from .simulation.serving import Dispatcher


def least_latency(seconds: np.ndarray, memory: np.ndarray, budget: np.ndarray, transfer: np.ndarray) -> tuple[tuple[int, ...], float]:
    """Returns (cuts, seconds) from seconds [tiers, blocks], memory [blocks], budget [tiers] and transfer [tiers − 1, blocks + 1].

    The first tier keeps at least the first block, because the data are there; later tiers may be left out.
    """
    tiers, n = seconds.shape
    sums = np.concatenate([np.zeros((tiers, 1)), np.cumsum(seconds, axis=1)], axis=1)
    held = np.concatenate([[0.0], np.cumsum(memory)])
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    came = np.zeros((tiers, n + 1), np.int64)
    for j in range(tiers):
        new = np.full(n + 1, np.inf)
        for i in range(1 if j == 0 else 0, n + 1):
            starts = np.arange(i + 1) if j else np.array([0])
            starts = starts[held[i] - held[starts] <= budget[j]]
            if len(starts) == 0:
                continue
            total = best[starts] + (sums[j, i] - sums[j, starts]) + (transfer[j - 1, starts] if j else 0.0)
            at = int(np.argmin(total))
            new[i], came[j, i] = total[at], starts[at]
        best = new
    if not np.isfinite(best[n]):
        raise InputError("the blocks do not fit on the tiers")
    cuts, i = [], n
    for j in range(tiers - 1, 0, -1):
        i = int(came[j, i])
        cuts.append(i)
    return tuple(reversed(cuts)), float(best[n])


@dataclass(frozen=True)
class EdgeShard(TierTechnique):
    """The cut has the least latency of a single request over devices and links, on fixed pipelines of nodes (Zhang et al., 2024)."""

    def cut(self, costs: BlockCosts, mix: Mix) -> TierPlan:
        """Cuts by dynamic programming over tiers and blocks; every pass pays for a token's way through the links."""
        tiers = costs.hierarchy.tiers
        seconds = np.array([np.mean([costs.seconds(j, k, mix) for k in range(len(t))], axis=0) for j, t in enumerate(tiers)])
        transfer = costs.transfer(mix)
        # A tier after all blocks is left out, and so is every token's trip to it and back.
        trip = 2 * mix.output * np.array([[t.latency_s] for t in tiers[:-1]])
        transfer = transfer + np.where(np.arange(costs.blocks + 1)[None, :] < costs.blocks, trip, 0.0)
        budget = np.array([t.memory for t in tiers])
        cuts, bound = least_latency(seconds, costs.memory(RESERVE_TOKENS), budget, transfer)
        return plan_of(costs, cuts, bound)

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Requests go to fixed pipelines of nodes."""
        return Fixed(costs.hierarchy)
