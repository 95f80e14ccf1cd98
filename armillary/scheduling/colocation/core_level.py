"""Core level: place where the cores' neighbours have the least symmetric interference score, linear in CPI and MPKI.

This is the coarse profiling that Hestia's paper (2026) criticises: one number per pair that shares a core, the same in both directions,
blind to the socket and to the hardware. Its three weights are a least-squares fit on the same samples. Ties go to the emptiest server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique
from armillary.learn import Model, Recipe, obtain

from .hestia import SAMPLES, TRAINING
from .placement.by_tables import TableScheduler
from .placement.candidates import Weights
from .placement.scheduler import Scene
from .prediction.predictors import CoreScores
from .prediction.scores import tables

#: SHA-256 of the shipped model.
SHIPPED = "a8f0d127923fb1fcf35699de0a1aea5b98b8cb44c862617b667b98cc9db30713"


@dataclass(frozen=True)
class CoreLevel(Technique):
    """Symmetric scores of shared cores."""

    def recipe(self) -> Recipe:
        """The fit of the three weights."""
        return Recipe(
            "scheduling/colocation/core-level", "armillary.scheduling.colocation.learning.train:train",
            parameters={"predictor": "core", "samples": SAMPLES}, cases=TRAINING, seed=0, shipped=SHIPPED, expected_s=15,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped model."""
        return [self.recipe()]

    def model(self) -> Model:
        """The fitted weights."""
        return obtain(self.recipe())

    def scheduler(self, scene: Scene) -> TableScheduler:
        """The procedure in a scene: tables of cores alone, and no moves."""
        predictor = CoreScores(self.model().arrays["weights"].astype(np.float64))
        made = tuple(tables(predictor, scene, int(scene.app.max()) + 1, t) for t in scene.fleet.topologies)
        weights = Weights(1.0, 0.0, 0.0, spread=1e-6, own=0.0)
        return TableScheduler(scene, predictor, made, weights, top=0, offered=0.0)
