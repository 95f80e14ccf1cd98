"""Conjugate gradients, until the recurrence's residual is 1e-8 of the right-hand side."""

from __future__ import annotations

import numpy as np

from .loops import combine, dot, test
from .solver import Array, Solver

TOLERANCE = 1e-8


class Cg(Solver):
    """Solves A x = b for a symmetric positive definite A and a random b."""

    name, control, recurs, symmetric = "cg", "iterations", True, True

    def begin(self, rng: np.random.Generator) -> None:
        """x = 0, r = p = b."""
        self.b = self.vector(rng.standard_normal(self.rows))
        self.x, self.r = self.vector(np.zeros(self.rows)), self.vector(self.b)
        self.p, self.q = self.vector(self.b), self.vector(np.zeros(self.rows))
        self.rr = self.size = dot(self.m, self.at(self.r), self.r, self.at(self.r), self.r)

    def advance(self) -> bool:
        """One iteration."""
        m, at = self.m, self.at
        self.multiply(self.p, self.q)
        pq = dot(m, at(self.p), self.p, at(self.q), self.q)
        alpha = self.rr / pq if pq else 0.0
        combine(m, alpha, at(self.p), self.p, 1.0, at(self.x), self.x)
        combine(m, -alpha, at(self.q), self.q, 1.0, at(self.r), self.r)
        rr = dot(m, at(self.r), self.r, at(self.r), self.r)
        combine(m, 1.0, at(self.r), self.r, rr / self.rr if self.rr else 0.0, at(self.p), self.p)
        self.rr = rr
        self.windows += 1
        done = rr <= TOLERANCE * TOLERANCE * self.size
        test(m, done)
        return not done

    def vectors(self) -> dict[str, Array]:
        """Solution, residual and direction."""
        return {"x": self.x, "r": self.r, "p": self.p}

    def state(self) -> Array:
        """The solution so far."""
        return self.x
