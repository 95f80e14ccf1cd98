"""Power iteration: products and normalisations, as many as are asked for."""

from __future__ import annotations

import math

import numpy as np

from .loops import combine, dot
from .solver import Array, Solver

TURNS = 24


class Spmv(Solver):
    """x = A x / |A x|, 24 times."""

    name, control = "spmv", "fixed"

    def begin(self, rng: np.random.Generator) -> None:
        """Begins with a random vector of positive numbers."""
        self.x = self.vector(rng.uniform(0.5, 1.5, self.rows))
        self.y = self.vector(np.zeros(self.rows))

    def advance(self) -> bool:
        """One product and one normalisation."""
        self.multiply(self.x, self.y)
        size = math.sqrt(dot(self.m, self.at(self.y), self.y, self.at(self.y), self.y))
        combine(self.m, 1 / size if size else 0.0, self.at(self.y), self.y, 0.0, self.at(self.x), self.x)
        self.windows += 1
        return self.windows < TURNS

    def vectors(self) -> dict[str, Array]:
        """The iterate."""
        return {"x": self.x}

    def state(self) -> Array:
        """The iterate."""
        return self.x
