"""Boosted pairs: gradient-boosted trees on the features of VM and host side by side, for every pair: accurate and slow.

The trees are scikit-learn's HistGradientBoostingRegressor: 300 trees of 31 leaves, trained on the same pairs as TRACE.
LightGBM: A Highly Efficient Gradient Boosting Decision Tree, NeurIPS 2017, describes the algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.learn import Recipe, obtain

from .learning.cases import HELD, SNAPSHOTS, TRAINING
from .learning.rivals import PairRanker, boosted
from .problem.ranker import Ranker
from .workload import VmWork

#: SHA-256 of the shipped model, as `armillary learn rebuild boosted-pairs` prints it.
SHIPPED = "e4c8e6c83a84a94c9e80cb53bd23a4b098c18ecaab6fce34949d45cde9a8ad9f"


@dataclass(frozen=True)
class BoostedPairs(Technique):
    """Trees for every pair."""

    def recipe(self) -> Recipe:
        """How the model is made from the built-in training fleets."""
        return Recipe(
            "scheduling/vm/boosted-pairs", "armillary.scheduling.vm.learning.rivals:train_boosted",
            parameters={"snapshots": SNAPSHOTS, "held": HELD}, cases=TRAINING, shipped=SHIPPED, expected_s=30,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped model."""
        return [self.recipe()]

    def ranker(self, work: VmWork) -> Ranker:
        """Predicts every pair by itself."""
        return PairRanker(boosted(obtain(self.recipe())))
