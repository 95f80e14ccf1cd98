"""Hyperion cuts so that the slowest stage is bounded (BSDP), and sends requests to the node that will be done first (ARTS).

Hyperion: Hierarchical Scheduling for Parallel LLM Acceleration in Multi-tier Networks, arXiv 2511.14450, 2025.

The problem, bisection with dynamic programming for the cuts, and dispatch by queue and capacity are published. Our design: costs in
seconds of the expected mix (`cost="time"`), the tie rules, room for keys and values, the observed speed of a node, and when to cut again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from armillary.arena import Claim, Gain, Kind
from armillary.parameters import parameter

from .nodes.stage_cost import BlockCosts, Mix
from .planning.bsdp import bsdp
from .planning.plan import TierPlan, plan_of
from .planning.technique import RESERVE_TOKENS, TierTechnique
from .simulation.dispatch import ByArts
from .simulation.serving import Dispatcher

_SOURCE = "arXiv 2511.14450"
_WHY = "its testbed's links and background load are not published; ours are our own figures"
#: The model is cut again if a tier's speed differs by more than this from the plan's for this long; weights get this share of the links.
DRIFT, DRIFT_S, WEIGHTS_SHARE = 0.2, 60.0, 0.5


def hyperion_cut(costs: BlockCosts, mix: Mix, cost: str, capacity: str, left: Sequence[float] | None = None) -> TierPlan:
    """Cuts the model's blocks by BSDP; `left` [tiers] is the available share of each tier's speed."""
    speed = costs.capacity(cost, mix, capacity) * (1.0 if left is None else np.asarray(left))
    budget = np.array([tier.memory for tier in costs.hierarchy.tiers])
    memory = costs.memory(RESERVE_TOKENS)
    cuts, bound = bsdp(costs.work(cost, mix), memory, speed, budget, transfer=costs.transfer(mix))
    return plan_of(costs, cuts, bound)


class Replanning(ByArts):
    """ARTS that also watches the tiers and cuts the model again when one has been slower or faster than planned for a minute."""

    def __init__(self, costs: BlockCosts, plan: TierPlan, mix: Mix, how: Hyperion) -> None:
        super().__init__(costs, plan, how.alpha, how.staleness_s)
        self.costs, self.current, self.mix, self.how = costs, plan, mix, how
        self.planned = [1.0] * len(self.tiers)
        self.off_since: float | None = None

    def replan(self, now: float) -> tuple[TierPlan, float] | None:
        """Returns a new cut, which is used once its weights have arrived over half of the links."""
        seen = [float(np.mean(arts.capacity)) for arts in self.tiers]
        off = any(abs(a / b - 1) > DRIFT for a, b in zip(seen, self.planned, strict=True))
        self.off_since = (now if self.off_since is None else self.off_since) if off else None
        if self.off_since is None or now - self.off_since < DRIFT_S:
            return None
        self.off_since = None
        self.planned = seen
        new = hyperion_cut(self.costs, self.mix, self.how.cost, self.how.capacity, seen)
        if new.cuts == self.current.cuts:
            return None
        seconds = 0.0
        for j, ((lo, hi), (a, b)) in enumerate(zip(self.current.segments, new.segments, strict=True)):
            missing = sorted(set(range(a, b)) - set(range(lo, hi)))
            links = [t.uplink for t in self.costs.hierarchy.tiers[max(0, j - 1) : j + 1] if t.uplink is not None]
            rate = min((link.mean for link in links), default=float("inf"))
            seconds = max(seconds, float(self.costs.weights[missing].sum()) / (WEIGHTS_SHARE * rate))
        self.current = new
        return new, now + seconds


@dataclass(frozen=True)
class Hyperion(TierTechnique):
    """Cuts by BSDP and dispatches by ARTS."""

    cost: Literal["flops", "time"] = parameter("flops", "what a block costs: flops (published), or seconds at the expected mix (ours)")
    capacity: Literal["mean", "min", "sum"] = parameter("mean", "how the speeds of a tier's nodes become one number")
    alpha: float = parameter(0.3, "the weight of the newest observation of a node's speed", range=(0.01, 1.0))
    staleness_s: float = parameter(0.0, "the seconds after which the state of a node's queue is known", range=(0.0, 60.0))
    recut: bool = parameter(True, "whether the model is cut again when a tier's speed drifts from the plan's")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "mean_latency", over="gpipe", by=Gain(percent=(52.1, None)), on=Kind("phi-3-medium", "rho-0.6", "mixed"), source=_SOURCE,
            says="up to 52.1 % less latency than GPipe", honest=(30.0, 60.0), why=_WHY,
        ),
        Claim(
            "mean_latency", over="heft", by=Gain(percent=(31.2, None)), on=Kind("phi-3-medium", "rho-0.6", "mixed"), source=_SOURCE,
            says="up to 31.2 % less latency than HEFT", honest=(10.0, 40.0), why=_WHY,
        ),
        Claim(
            "mean_latency", over="gpipe", by=Gain(percent=(44.5, None)), on=Kind("long", "mixed"), source=_SOURCE,
            says="44.5 % less latency than GPipe on long answers",
        ),
        Claim(
            "gpu_utilisation", over="gpipe", by=Gain(difference=(0.0, None)), on=Kind("long", "mixed"), source=_SOURCE,
            says="higher utilisation than GPipe on long answers",
        ),
    )  # fmt: skip

    def cut(self, costs: BlockCosts, mix: Mix) -> TierPlan:
        """Cuts by BSDP."""
        return hyperion_cut(costs, mix, self.cost, self.capacity)

    def dispatcher(self, costs: BlockCosts, plan: TierPlan, mix: Mix) -> Dispatcher:
        """Dispatches by ARTS."""
        return Replanning(costs, plan, mix, self) if self.recut else ByArts(costs, plan, self.alpha, self.staleness_s)
