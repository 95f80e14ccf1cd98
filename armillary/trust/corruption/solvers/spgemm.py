"""The square of a matrix, row by row with a dense row of sums, without entries that are too small."""

from __future__ import annotations

import numpy as np

from .loops import square
from .solver import Array, Solver
from .trisolve import BLOCKS, bounds

#: Entries below this share of the largest entry of A are left out.
DROP = 0.3


class SpGemm(Solver):
    """A A without small entries, in 16 windows; each run scales the rows and columns of A by random numbers near one."""

    name, control, moves = "spgemm", "pattern", False

    def begin(self, rng: np.random.Generator) -> None:
        """Scales the matrix."""
        scale = rng.uniform(0.8, 1.25, self.rows)
        row = np.repeat(np.arange(self.rows), np.diff(self.pointers))
        self.values *= scale[row] * scale[self.columns]
        self.total, self.sums = self.vector(np.zeros(self.rows)), np.zeros((self.rows, 4))
        self.seen, self.listed = np.full(self.rows, -1, np.int32), np.zeros(self.rows, np.int32)
        others = [self.core.place(one) for one in (self.seen, self.listed, np.empty(1 << 17))]
        self._places = np.array([*self._matrix_at, self.at(self.total), *others])
        self.drop = DROP * float(np.abs(self.values).max())
        self._bounds = bounds(self.rows)

    def advance(self) -> bool:
        """One block of rows."""
        first, last = self._bounds[self.windows : self.windows + 2]
        square(
            self.m, self._places, self.values, self.columns, self.pointers, self.total, self.seen, self.listed, self.drop, first, last,
            self.sums,
        )  # fmt: skip
        if self.watch is not None:
            self.watch.product(np.ones(self.rows), self.sums[first:last, 0] + self.sums[first:last, 1])
        self.windows += 1
        return self.windows < BLOCKS

    def vectors(self) -> dict[str, Array]:
        """None: its sums live for one row."""
        return {}

    def state(self) -> Array:
        """By row: the sum of the kept entries, their number, and their sum weighted by column."""
        return self.sums[:, [0, 2, 3]].ravel()
