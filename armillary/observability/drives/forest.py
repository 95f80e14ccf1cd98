"""A random forest over one row per drive-day: the usual first learner for failing drives.

Random Forests, Machine Learning 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .judging.lesson import DriveTechnique, Lesson, Scorer

EVERY = "days of a healthy drive per training row"


@dataclass(frozen=True)
class Forest(DriveTechnique):
    """Scores a drive-day by the share of trees that expect a failure."""

    trees: int = parameter(100, "trees", range=(1, 5000))
    every: int = parameter(10, EVERY, range=(1, 365))

    def learn(self, lesson: Lesson) -> Scorer:
        """Grows the forest."""
        from .trees.classical import forest

        return forest(lesson, every=self.every, trees=self.trees)
