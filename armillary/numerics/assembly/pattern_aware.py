"""Pattern-aware assembly: a small network looks at the mesh and names the strategy that will be fastest on this device.

No way of assembling wins everywhere: how many elements meet at a node, how far apart their numbers are and how uneven rows are decides. 36
cheap features and a picture of the sparsity pattern, 64×64, go through a small convolutional network that predicts log-seconds for every
strategy; the least sum of numeric seconds and preparation, shared by its reuses, is taken. It is trained for each device from a measured
table. Features, network and strategies on the CPU are our design, after the published outline.

A Pattern-Aware Finite Element Matrix Assembly Method on GPUs, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level
from armillary.parameters import parameter

from .assembling.strategy import Problem, Strategy
from .selecting.choice import choose_for
from .selecting.selector import Selector
from .selecting.table import Seconds


@dataclass(frozen=True)
class PatternAware(Selector):
    """The strategy that a trained network predicts to be fastest."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "seconds", over="coo-sort", by=Gain(ratio=(7.34, None)), on=Kind("held-out"), aggregate="max", honest=(5.0, None), part=2.0,
            says="up to 7.34× over state-of-the-art approaches", source="abstract",
            why="on a CPU the baseline of the paper's kind is coo-sort; 5× counts as held, 2× in part",
        ),
        Claim(
            "accuracy", by=Level(at_least=0.85), on=Kind("held-out"), part=0.7, says="remarkable prediction accuracy", source="abstract",
            why="the abstract gives no figure; 0.85 on unseen families counts as held and 0.7 in part, and ties within 5 % count as right",
        ),
        Claim(
            "regret", by=Level(at_most=0.05), on=Kind("held-out"),
            says="at most 5 % slower than the best strategy, as a mean over meshes",
            source="our reading of the same sentence",
        ),
        Claim(
            "seconds", over="always-best-on-average", by=Gain(ratio=(1.0, None)), on=Kind("held-out"),
            says="inspecting the mesh beats the strategy that is best on average", source="our reading of the paper's idea",
        ),
        Claim(
            "seconds", over="blocked", by=Gain(ratio=(1.0, None)), on=Kind("held-out"),
            says="inspecting the mesh beats taking blocked for every mesh", source="our reading of the paper's idea",
        ),
    )  # fmt: skip

    reuse: int = parameter(0, "the number of assemblies that share one preparation; 0 leaves preparation out", range=(0, 10**9))
    hybrid: bool = parameter(False, "whether elements at nodes of high valence are assembled apart where that is predicted to gain 10 %")
    weights: str = parameter("", "an .npz that `armillary assembly train` wrote, instead of the package's own weights")

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        return choose_for(problem, reuse=self.reuse, weights=self.weights or None, family=family, hybrid=self.hybrid).made
