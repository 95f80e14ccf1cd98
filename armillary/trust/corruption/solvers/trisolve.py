"""Forward substitution with the lower triangle, block of rows by block of rows."""

from __future__ import annotations

import numpy as np

from ..matrices.csr import Csr
from .loops import substitute
from .solver import Array, Solver

BLOCKS = 16


def lower(matrix: Csr) -> Csr:
    """The lower triangle with a diagonal that is one where it is missing; the diagonal is the last entry of its row."""
    row = np.repeat(np.arange(matrix.rows), np.diff(matrix.pointers))
    off = matrix.columns < row
    diagonal = np.ones(matrix.rows)
    here = (matrix.columns == row) & (matrix.values != 0)
    diagonal[row[here]] = matrix.values[here]
    every = np.arange(matrix.rows)
    rows = np.concatenate([row[off], every])
    columns = np.concatenate([matrix.columns[off], every])
    order = np.lexsort((columns, rows))
    values = np.concatenate([matrix.values[off], diagonal])[order]
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=matrix.rows))])
    return Csr(values, columns[order].astype(np.int32), pointers.astype(np.int64))


def bounds(rows: int, blocks: int = BLOCKS) -> list[int]:
    """The first rows of the blocks, and the end."""
    return [rows * i // blocks for i in range(blocks + 1)]


class TriSolve(Solver):
    """Solves L x = b in 16 windows."""

    name, control, moves = "trisolve", "fixed", False

    @classmethod
    def prepared(cls, matrix: Csr) -> Csr:
        """The lower triangle."""
        return lower(matrix)

    def begin(self, rng: np.random.Generator) -> None:
        """x = 0."""
        self.b, self.x = self.vector(rng.standard_normal(self.rows)), self.vector(np.zeros(self.rows))
        self._places = np.array([*self._matrix_at, self.at(self.b), self.at(self.x)])
        self._bounds = bounds(self.rows)

    def advance(self) -> bool:
        """One block of rows."""
        first, last = self._bounds[self.windows : self.windows + 2]
        substitute(self.m, self._places, self.values, self.columns, self.pointers, self.b, self.x, first, last)
        if self.watch is not None:
            self.watch.product(self.x, self.b[first:last])
        self.windows += 1
        return self.windows < BLOCKS

    def vectors(self) -> dict[str, Array]:
        """Solution and right-hand side."""
        return {"x": self.x, "b": self.b}

    def state(self) -> Array:
        """The solution so far."""
        return self.x
