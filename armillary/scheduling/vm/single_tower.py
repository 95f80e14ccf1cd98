"""Single tower: a perceptron (44-128-64-1) on the features of VM and host side by side, for every pair.

Neural Collaborative Filtering, WWW 2017, scores pairs by such a network.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.learn import Recipe, obtain

from .learning.cases import HELD, SNAPSHOTS, TRAINING
from .learning.rivals import PairRanker, tower
from .problem.ranker import Ranker
from .workload import VmWork

#: SHA-256 of the shipped model, as `armillary learn rebuild single-tower` prints it.
SHIPPED = "516d5cdc5a195f46bc34c0b804c6c29288193534e081ba059b9e31405f7111ec"


@dataclass(frozen=True)
class SingleTower(Technique):
    """One network for every pair."""

    def recipe(self) -> Recipe:
        """How the model is made from the built-in training fleets."""
        return Recipe(
            "scheduling/vm/single-tower", "armillary.scheduling.vm.learning.rivals:train_tower",
            parameters={"snapshots": SNAPSHOTS, "held": HELD}, cases=TRAINING, shipped=SHIPPED, expected_s=30,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped model."""
        return [self.recipe()]

    def ranker(self, work: VmWork) -> Ranker:
        """Predicts every pair by itself."""
        return PairRanker(tower(obtain(self.recipe())))
