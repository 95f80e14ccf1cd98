"""HEFT takes the stages of a request as a task graph, by upward rank, and sends each to the node on which it would finish earliest.

Performance-effective and low-complexity task scheduling for heterogeneous computing, IEEE TPDS 13(3), 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .nodes.stage_cost import BlockCosts, Mix
from .planning.plan import TierPlan
from .planning.technique import TierTechnique, even_cut
from .simulation.dispatch import LeastWork
from .simulation.serving import Dispatcher


def upward_ranks(work: Sequence[Sequence[float]], transfer: Sequence[float]) -> list[float]:
    """Returns the seconds of each stage's mean over its nodes plus everything that follows it, transfers included, [stages]."""
    ranks: list[float] = []
    for j in reversed(range(len(work))):
        after = transfer[j] + ranks[-1] if ranks else 0.0
        ranks.append(float(np.mean(work[j])) + after)
    return ranks[::-1]


def earliest_finish(
    work: Sequence[Sequence[float]], first: Sequence[Sequence[float]], transfer: Sequence[float], waiting: Sequence[Sequence[float]]
) -> tuple[list[int], float]:
    """Returns (node of each stage, seconds until the last is done), taking stages by upward rank, each where it ends first.

    work, first and waiting [stage][node] are the seconds of the whole request, of its first pass, and of what waits; transfer
    [stages − 1] is the seconds to the next stage, which can begin when the first pass has arrived.
    """
    ranks = upward_ranks(work, transfer)
    nodes, ready, end = [0] * len(work), 0.0, 0.0
    for j in sorted(range(len(work)), key=lambda j: -ranks[j]):
        starts = [max(ready, waits) for waits in waiting[j]]
        ends = [start + takes for start, takes in zip(starts, work[j], strict=True)]
        k = nodes[j] = int(np.argmin(ends))
        end = max(end, ends[k])
        ready = starts[k] + first[j][k] + (transfer[j] if j < len(transfer) else 0.0)
    return nodes, end


class ByHeft(LeastWork):
    """Plans all stages of a request when it arrives, from the present queues and the idle speed of the devices."""

    def __init__(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> None:
        super().__init__(costs, plan, 1.0, 0.0)
        self.stages = [j for j, (lo, hi) in enumerate(plan.segments) if hi > lo]
        seconds = [[costs.seconds(j, k, mix) for k in range(n)] for j, n in enumerate(self.sizes)]
        self.expected = [[float(row[slice(*plan.segments[j])].sum()) for row in seconds[j]] for j in self.stages]
        p = round(mix.prompt)
        self.first = [
            [costs.pass_seconds(j, k, *plan.segments[j], p, 1, p * (p + 1) / 2, 0.0) for k in range(self.sizes[j])] for j in self.stages
        ]
        moved = mix.prompt / (mix.prompt + mix.output) * costs.transfer(mix)
        late = [tier.latency_s for tier in costs.hierarchy.tiers]
        self.transfer = [
            float(sum(moved[j, plan.cuts[a]] + late[j] for j in range(a, b))) for a, b in zip(self.stages, self.stages[1:], strict=False)
        ]
        self.planned: dict[int, list[int]] = {}

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """Returns the planned node. All stages are planned when the first one asks, and count as waiting from then on."""
        if request not in self.planned:
            waiting = [[max(0.0, q) for q in self.tiers[j].queue] for j in self.stages]
            nodes, _ = earliest_finish(self.expected, self.first, self.transfer, waiting)
            self.planned[request] = nodes
            for j, k, seconds in zip(self.stages, nodes, self.expected, strict=True):
                self.tiers[j].queue[k] += seconds[k]
        at = self.stages.index(tier)
        k = self.planned[request][at]
        self.tiers[tier].queue[k] += work[k] - self.expected[at][k]
        if tier == self.stages[-1]:
            del self.planned[request]
        return k

    def release(self, tier: int, node: int, work: float, memory: float, now: float) -> None:
        """Takes back what was booked and not needed; HEFT ignores memory."""
        self.tiers[tier].release(node, work, 0.0, now)


@dataclass(frozen=True)
class Heft(TierTechnique):
    """Every tier gets equal flops; the stages of each request are planned by earliest finish time (Topcuoglu et al., 2002)."""

    def cut(self, costs: BlockCosts, mix: Mix) -> TierPlan:
        """Returns every tier gets equal flops."""
        return even_cut(costs, costs.flops(mix))

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Returns each stage goes to the node on which it finishes earliest."""
        return ByHeft(costs, plan, mix)
