"""Pattern-aware assembly: a small network looks at the mesh and names the strategy that will be fastest on this device.

No way of assembling wins everywhere: how many elements meet at a node, how far apart their numbers are and how uneven rows are decides. 32
cheap features and a picture of the sparsity pattern, 64×64, go through a small convolutional network that predicts log-seconds for every
strategy; the least sum of numeric seconds and preparation, shared by its reuses, is taken. It is trained for each device from a measured
table. Features, network and strategies on the CPU are our design, after the published outline.

A Pattern-Aware Finite Element Matrix Assembly Method on GPUs, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level

from .choice import choose_for
from .selector import Selector
from .strategy import Problem, Strategy
from .table import Seconds


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
            why="the abstract gives no figure; 0.85 on families never learned from counts as held, 0.7 in part, ties within 5 % are right",
        ),
        Claim(
            "regret", by=Level(at_most=0.05), on=Kind("held-out"), says="at most 5 % slower than the best strategy, mean over meshes",
            source="our reading of the same sentence",
        ),
        Claim(
            "seconds", over="always-best-on-average", by=Gain(ratio=(1.0, None)), on=Kind("held-out"),
            says="looking at the mesh beats the strategy that is best on average", source="our reading of the paper's idea",
        ),
    )  # fmt: skip

    reuse: int = field(default=0, metadata={"doc": "assemblies that share one preparation; 0: it does not count", "range": (0, 10**9)})
    hybrid: bool = field(
        default=False, metadata={"doc": "set elements at nodes of high valence apart where that is predicted to gain 10 %"}
    )
    weights: str = field(default="", metadata={"doc": "an .npz that train wrote, instead of the package's own"})

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        return choose_for(problem, reuse=self.reuse, weights=self.weights or None, family=family, hybrid=self.hybrid).made
