"""Gradient boosting: Hestia's whole procedure with boosted trees in place of attention.

The trees see the same numbers as sums over neighbours, weighted by how much they share and how busy they are. The rival is ours.

Greedy function approximation: a gradient boosting machine, Annals of Statistics 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter
from armillary.learn import Model, Recipe, obtain

from .hestia import SAMPLES, TRAINING
from .placement.by_tables import TableScheduler
from .placement.scheduler import Scene
from .prediction.scores import tables

TREES = 250
#: SHA-256 of the shipped model.
SHIPPED = "62a79c2397a7d73bd92ae60e65ae7fcfe6b47bd8641169ee11c1fba4cfdce60a"


@dataclass(frozen=True)
class GradientBoosting(Technique):
    """Places by distilled trees."""

    top: int = parameter(5, "thread sets that the trees re-score before each decision; 0 decides by the tables alone", range=(0, 1000))
    trees: int = parameter(TREES, "trees; any number but the default trains a new model", range=(1, 10_000))

    def recipe(self) -> Recipe:
        """How the trees are made from the same samples as Hestia's network."""
        return Recipe(
            "scheduling/colocation/gradient-boosting", "armillary.scheduling.colocation.learning.train:train",
            parameters={"predictor": "trees", "samples": SAMPLES, "trees": self.trees}, cases=TRAINING, seed=0,
            shipped=SHIPPED if self.trees == TREES else "", expected_s=20,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped model."""
        return [self.recipe()]

    def model(self) -> Model:
        """The trained trees."""
        return obtain(self.recipe())

    def scheduler(self, scene: Scene) -> TableScheduler:
        """The procedure in a scene."""
        from .learning.train import trees_of

        predictor = trees_of(self.model())
        made = tuple(tables(predictor, scene, int(scene.app.max()) + 1, t) for t in scene.fleet.topologies)
        return TableScheduler(scene, predictor, made, top=self.top)
