"""Gradient-boosted trees over one row per drive-day, which practitioners reach for first.

LightGBM grows them; where it is not installed, scikit-learn's histogram boosting with the same settings does.

LightGBM: A Highly Efficient Gradient Boosting Decision Tree, NeurIPS 2017.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from armillary.parameters import parameter

from .forest import EVERY
from .judging.lesson import DriveTechnique, Lesson, Scorer


@dataclass(frozen=True)
class LightGbm(DriveTechnique):
    """Scores a drive-day by boosted trees."""

    trees: int = parameter(150, "trees", range=(1, 5000))
    leaves: int = parameter(15, "leaves per tree", range=(2, 1024))
    rate: float = parameter(0.05, "learning rate", range=(1e-4, 1.0))
    every: int = parameter(10, EVERY, range=(1, 365))
    package: str = parameter("auto", "who grows the trees", choices=("auto", "lightgbm", "scikit-learn"))

    def learn(self, lesson: Lesson) -> Scorer:
        """Grows the trees."""
        from .trees.classical import boosted

        there = importlib.util.find_spec("lightgbm") is not None
        package = self.package if self.package != "auto" else "lightgbm" if there else "scikit-learn"
        return boosted(lesson, every=self.every, trees=self.trees, leaves=self.leaves, rate=self.rate, package=package)
