"""Jacobi's iteration, a fixed number of times, as a smoother is used."""

from __future__ import annotations

import numpy as np

from .loops import correct
from .solver import Array, Solver

TURNS = 24


class Jacobi(Solver):
    """x += (b - A x) / diagonal, 24 times."""

    name, control = "jacobi", "fixed"

    def begin(self, rng: np.random.Generator) -> None:
        """x = 0."""
        self.b = self.vector(rng.standard_normal(self.rows))
        rows = np.repeat(np.arange(self.rows), np.diff(self.pointers))
        diagonal = np.zeros(self.rows)
        diagonal[rows[rows == self.columns]] = self.values[rows == self.columns]
        self.diagonal = self.vector(np.where(diagonal == 0, 1.0, diagonal))
        self.x, self.y = self.vector(np.zeros(self.rows)), self.vector(np.zeros(self.rows))
        self._places = np.array([self.at(one) for one in (self.b, self.diagonal, self.y, self.x)])

    def advance(self) -> bool:
        """One product and one correction."""
        self.multiply(self.x, self.y)
        correct(self.m, self._places, self.b, self.diagonal, self.y, self.x)
        self.windows += 1
        return self.windows < TURNS

    def vectors(self) -> dict[str, Array]:
        """Solution and right-hand side."""
        return {"x": self.x, "b": self.b}

    def state(self) -> Array:
        """The solution so far."""
        return self.x
