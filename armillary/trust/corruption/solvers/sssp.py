"""Shortest paths from one vertex: rounds of relaxing the edges of those vertices that came closer (Bellman and Ford with a front)."""

from __future__ import annotations

import numpy as np

from ..matrices.csr import Csr
from .loops import relax
from .solver import Array, Solver

FAR = 1e30


class Sssp(Solver):
    """Distances from a random vertex along entries off the diagonal, whose sizes are the lengths; one round per window."""

    name, control, multiplies, moves = "sssp", "pattern", False, False

    @classmethod
    def prepared(cls, matrix: Csr) -> Csr:
        """Lengths from a half to two and a half, by a fixed rule from the entries' places, so that paths differ."""
        row = np.repeat(np.arange(matrix.rows), np.diff(matrix.pointers))
        mixed = (np.minimum(row, matrix.columns) * 2654435761 + np.maximum(row, matrix.columns) * 40503) % 65521
        return Csr(0.5 + mixed / 65521 * 2.0, matrix.columns, matrix.pointers)

    def begin(self, rng: np.random.Generator) -> None:
        """Begins at a random vertex."""
        self.source = int(rng.integers(self.rows))
        self.start(self.source)

    def start(self, source: int) -> None:
        """Begins at a vertex."""
        distance = np.full(self.rows, FAR)
        distance[source] = 0.0
        self.distance = self.vector(distance)
        self.front, self.ahead = np.zeros(self.rows, np.int32), np.zeros(self.rows, np.int32)
        self.front[0], self.fronted = source, 1
        self.waiting = np.zeros(self.rows, np.uint8)
        places = [self.core.place(one) for one in (self.front, self.ahead, self.waiting)]
        self._places = np.array([*self._matrix_at, self.at(self.distance), *places])
        self.sizes = [1]

    def advance(self) -> bool:
        """One round."""
        self.fronted = relax(
            self.m, self._places, self.values, self.columns, self.pointers, self.distance, self.front, self.fronted, self.ahead,
            self.waiting,
        )  # fmt: skip
        self.front, self.ahead = self.ahead, self.front
        self._places[[4, 5]] = self._places[[5, 4]]
        self.sizes.append(self.fronted)
        self.windows += 1
        return self.fronted > 0

    def vectors(self) -> dict[str, Array]:
        """The distances."""
        return {"distance": self.distance}

    def state(self) -> Array:
        """The distances so far."""
        return self.distance
