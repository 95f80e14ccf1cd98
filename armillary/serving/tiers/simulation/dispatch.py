"""Dispatchers that techniques and baselines share: in turn, at random, fixed, least work, and ARTS in every tier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..nodes.hierarchy import Hierarchy
from ..nodes.stage_cost import BlockCosts
from ..planning.plan import TierPlan
from .arts import Arts


class Turns:
    """Every tier's nodes in turn."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.sizes = [len(tier) for tier in hierarchy.tiers]
        self.next = [0] * len(hierarchy)

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """The next in turn."""
        k = self.next[tier]
        self.next[tier] = (k + 1) % self.sizes[tier]
        return k

    def done(self, tier: int, node: int, work: float, seconds: float, booked: float, now: float) -> None:
        """Nothing is learnt."""

    def release(self, tier: int, node: int, work: float, memory: float, now: float) -> None:
        """Nothing is kept."""

    def replan(self, now: float) -> tuple[TierPlan, float] | None:
        """Never."""
        return None


class Draws(Turns):
    """A node at random."""

    def __init__(self, hierarchy: Hierarchy, rng: np.random.Generator) -> None:
        super().__init__(hierarchy)
        self.rng = rng

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """Any of them alike."""
        return int(self.rng.integers(self.sizes[tier]))


class Fixed(Turns):
    """As many pipelines as the largest tier has nodes, requests over them in turn; a smaller tier's nodes are in several."""

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """The pipeline's node."""
        return (request % max(self.sizes)) % self.sizes[tier]


class ByArts(Turns):
    """ARTS in every tier. Work is in seconds of an idle device, so that a node's capacity is the share that others leave of it."""

    def __init__(self, costs: BlockCosts, plan: TierPlan, alpha: float, staleness_s: float) -> None:
        super().__init__(costs.hierarchy)
        self.tiers = []
        for j, (lo, hi) in enumerate(plan.segments):
            tier = costs.hierarchy.tiers[j]
            room = tier.memory - float(costs.weights[lo:hi].sum())
            self.tiers.append(Arts([1.0] * len(tier), [room] * len(tier), alpha=alpha, staleness_s=staleness_s))

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """The node that will be done first."""
        return self.tiers[tier].pick(work, memory, now)

    def done(self, tier: int, node: int, work: float, seconds: float, booked: float, now: float) -> None:
        """The node's speed is seen anew."""
        self.tiers[tier].done(node, work, seconds, now, booked)

    def release(self, tier: int, node: int, work: float, memory: float, now: float) -> None:
        """What was booked is free again."""
        self.tiers[tier].release(node, work, memory, now)


class LeastWork(ByArts):
    """The node with the least work waiting, all nodes taken to be as fast as they are when idle."""

    def done(self, tier: int, node: int, work: float, seconds: float, booked: float, now: float) -> None:
        """Only the queue shrinks."""
        self.tiers[tier].done(node, work, 0.0, now, booked)
