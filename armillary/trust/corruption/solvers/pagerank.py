"""PageRank with a jump of one's own, until the ranks change by less than 1e-8 in all."""

from __future__ import annotations

import numpy as np

from ..matrices.csr import Csr
from .loops import damped, test
from .solver import Array, Solver

TOLERANCE, DAMPING = 1e-8, 0.85


class PageRank(Solver):
    """x = 0.85 P x + 0.15 jump, where P are the sizes of the entries with columns that add up to one; three iterations per window."""

    name, control, every = "pagerank", "iterations", 3

    @classmethod
    def prepared(cls, matrix: Csr) -> Csr:
        """The sizes of the entries, each column divided by its sum."""
        size = np.abs(matrix.values)
        total = np.bincount(matrix.columns, size, matrix.rows)
        return Csr(size / np.where(total == 0, 1.0, total)[matrix.columns], matrix.columns, matrix.pointers)

    def begin(self, rng: np.random.Generator) -> None:
        """Begins at the jump."""
        jump = rng.random(self.rows)
        self.jump = self.vector(jump / float(np.add.accumulate(jump)[-1]))
        self.x, self.y = self.vector(self.jump), self.vector(np.zeros(self.rows))
        self._places = np.array([self.at(one) for one in (self.y, self.jump, self.x)])

    def advance(self) -> bool:
        """Up to three products."""
        self.windows += 1
        for _ in range(self.every):
            self.multiply(self.x, self.y)
            done = damped(self.m, self._places, DAMPING, self.y, self.jump, self.x) < TOLERANCE
            test(self.m, done)
            if done:
                return False
        return True

    def vectors(self) -> dict[str, Array]:
        """The ranks."""
        return {"x": self.x}

    def state(self) -> Array:
        """The ranks."""
        return self.x
