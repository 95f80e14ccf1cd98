"""Logistic regression over one row per drive-day, standardised, with classes balanced.

The regression analysis of binary sequences, Journal of the Royal Statistical Society 1958.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .forest import EVERY
from .judging.lesson import DriveTechnique, Lesson, Scorer


@dataclass(frozen=True)
class Logistic(DriveTechnique):
    """Scores a drive-day by a weighted sum of its features."""

    strength: float = parameter(0.01, "inverse of the penalty on large weights", range=(1e-6, 1e6))
    every: int = parameter(10, EVERY, range=(1, 365))

    def learn(self, lesson: Lesson) -> Scorer:
        """Fits the weights."""
        from .trees.classical import logistic

        return logistic(lesson, every=self.every, strength=self.strength)
