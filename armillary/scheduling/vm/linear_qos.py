"""Linear QoS: ridge regression of the QoS on the features of VM and host side by side, for every pair.

Ridge Regression: Biased Estimation for Nonorthogonal Problems, Technometrics 1970.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.learn import Recipe, obtain

from .learning.cases import HELD, SNAPSHOTS, TRAINING
from .learning.rivals import PairRanker, linear
from .problem.ranker import Ranker
from .workload import VmWork

#: SHA-256 of the shipped model, as `armillary learn rebuild linear-qos` prints it.
SHIPPED = "d42d08aad22f87f8b40df3a1ba4cd970df6656de9662b2a302fc24b745d0a5e3"


@dataclass(frozen=True)
class LinearQos(Technique):
    """A straight line through 44 features."""

    def recipe(self) -> Recipe:
        """How the model is made from the built-in training fleets."""
        return Recipe(
            "scheduling/vm/linear-qos", "armillary.scheduling.vm.learning.rivals:train_linear",
            parameters={"snapshots": SNAPSHOTS, "held": HELD}, cases=TRAINING, shipped=SHIPPED, expected_s=30,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped model."""
        return [self.recipe()]

    def ranker(self, work: VmWork) -> Ranker:
        """Predicts every pair by itself."""
        return PairRanker(linear(obtain(self.recipe())))
