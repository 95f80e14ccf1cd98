"""Dispatchers that techniques and baselines share: in turn, at random, fixed, least work, and ARTS in every tier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..nodes.hierarchy import Hierarchy
from ..nodes.stage_cost import BlockCosts
from ..planning.plan import TierPlan
from .arts import Arts


class Turns:
    """Picks every tier's nodes in turn."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.sizes = [len(tier) for tier in hierarchy.tiers]
        self.next = [0] * len(hierarchy)

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """Returns the next node in turn."""
        k = self.next[tier]
        self.next[tier] = (k + 1) % self.sizes[tier]
        return k

    def done(self, tier: int, node: int, work: float, seconds: float, booked: float, now: float) -> None:
        """Learns nothing."""

    def release(self, tier: int, node: int, work: float, memory: float, now: float) -> None:
        """Keeps nothing."""

    def replan(self, now: float) -> tuple[TierPlan, float] | None:
        """Never cuts again."""
        return None


class Draws(Turns):
    """Picks a node at random."""

    def __init__(self, hierarchy: Hierarchy, rng: np.random.Generator) -> None:
        super().__init__(hierarchy)
        self.rng = rng

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """Returns any node with equal probability."""
        return int(self.rng.integers(self.sizes[tier]))


class Fixed(Turns):
    """Sends requests to fixed pipelines in turn, as many as the largest tier has nodes; a smaller tier's nodes are in several."""

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """Returns the pipeline's node."""
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
        """Returns the node that will be done first."""
        return self.tiers[tier].pick(work, memory, now)

    def done(self, tier: int, node: int, work: float, seconds: float, booked: float, now: float) -> None:
        """Updates the observed speed of the node."""
        self.tiers[tier].done(node, work, seconds, now, booked)

    def release(self, tier: int, node: int, work: float, memory: float, now: float) -> None:
        """Frees what was booked."""
        self.tiers[tier].release(node, work, memory, now)


class LeastWork(ByArts):
    """Picks the node with the least waiting work, assuming that all nodes have their idle speed."""

    def done(self, tier: int, node: int, work: float, seconds: float, booked: float, now: float) -> None:
        """Shrinks the queue and learns nothing."""
        self.tiers[tier].done(node, work, 0.0, now, booked)
