"""Stabilised biconjugate gradients, until the recurrence's residual is 1e-8 of the right-hand side."""

from __future__ import annotations

import numpy as np

from .loops import combine, dot, test
from .solver import Array, Solver

TOLERANCE = 1e-8


class BiCgStab(Solver):
    """Solves A x = b for a random b; A need not be symmetric."""

    name, control, recurs = "bicgstab", "iterations", True

    def begin(self, rng: np.random.Generator) -> None:
        """x = 0, r = b."""
        zero = np.zeros(self.rows)
        self.b = self.vector(rng.standard_normal(self.rows))
        self.x, self.r, self.shadow = self.vector(zero), self.vector(self.b), self.vector(self.b)
        self.p, self.v, self.t = self.vector(self.b), self.vector(zero), self.vector(zero)
        self.rho = self.size = self._dot(self.r, self.r)

    def _dot(self, a: Array, b: Array) -> float:
        found: float = dot(self.m, self.at(a), a, self.at(b), b)
        return found

    def _combine(self, a: float, x: Array, b: float, y: Array) -> None:
        combine(self.m, a, self.at(x), x, b, self.at(y), y)

    def advance(self) -> bool:
        """One iteration, which has two products."""
        self.multiply(self.p, self.v)
        bottom = self._dot(self.shadow, self.v)
        alpha = self.rho / bottom if bottom else 0.0
        self._combine(-alpha, self.v, 1.0, self.r)
        self.multiply(self.r, self.t)
        size = self._dot(self.t, self.t)
        omega = self._dot(self.t, self.r) / size if size else 0.0
        self._combine(alpha, self.p, 1.0, self.x)
        self._combine(omega, self.r, 1.0, self.x)
        self._combine(-omega, self.t, 1.0, self.r)
        rho = self._dot(self.shadow, self.r)
        beta = rho / self.rho * (alpha / omega) if self.rho and omega else 0.0
        self._combine(-omega, self.v, 1.0, self.p)
        self._combine(1.0, self.r, beta, self.p)
        self.rho = rho
        self.windows += 1
        done = self._dot(self.r, self.r) <= TOLERANCE * TOLERANCE * self.size
        test(self.m, done)
        return not done

    def vectors(self) -> dict[str, Array]:
        """Solution, residual and direction."""
        return {"x": self.x, "r": self.r, "p": self.p}

    def state(self) -> Array:
        """The solution so far."""
        return self.x
