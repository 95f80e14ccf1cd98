"""What all solvers share: a matrix that can be corrupted while they run, and a core that counts what they do.

A solver is made, then advanced window by window until it is done; `arrays` are what a fault may hit. It may be watched by checks, which
see every product, and never change anything.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from ..machine.processor import Processor
from ..matrices.csr import Csr
from .loops import product

Array = np.ndarray[Any, Any]
#: A run that takes longer is stopped: a fault may keep a solver from ever ending.
MOST_WINDOWS = 240


class Watch(Protocol):
    """What sees the products of a solver."""

    def product(self, x: Array, y: Array) -> None:
        """y was computed as A x."""


class Solver:
    """One run of a computation on a matrix, on inputs drawn from `rng`."""

    name: ClassVar[str] = ""
    #: What depends on values: nothing ("fixed"), the number of iterations ("iterations"), or the work itself ("pattern").
    control: ClassVar[str] = ""
    #: Iterations per window.
    every: ClassVar[int] = 1
    #: Whether its products can be checked by sums of columns, it has a recurrence for its residual, and an iterate that moves in time.
    multiplies: ClassVar[bool] = True
    recurs: ClassVar[bool] = False
    moves: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False

    def __init__(self, matrix: Csr, rng: np.random.Generator, core: Processor, watch: Watch | None = None) -> None:
        self.core, self.m, self.watch = core, core.state, watch
        matrix = self.prepared(matrix)
        self.rows = matrix.rows
        self.values, self.columns, self.pointers = matrix.values.copy(), matrix.columns.copy(), matrix.pointers.copy()
        self._matrix_at = [core.place(one) for one in (self.values, self.columns, self.pointers)]
        self._at: dict[int, int] = {}
        self._ats: dict[tuple[int, int], Array] = {}
        self.windows = 0
        self.begin(rng)

    @classmethod
    def prepared(cls, matrix: Csr) -> Csr:
        """The matrix that the solver works on, made from the one that is given."""
        return matrix

    def begin(self, rng: np.random.Generator) -> None:
        """Draws the inputs."""
        raise NotImplementedError

    def advance(self) -> bool:
        """One window; whether there are more."""
        raise NotImplementedError

    def vectors(self) -> dict[str, Array]:
        """The vectors that a fault may hit."""
        raise NotImplementedError

    def state(self) -> Array:
        """The iterate."""
        raise NotImplementedError

    def result(self) -> Array:
        """What the run computes, once it is done."""
        return self.state()

    @property
    def arrays(self) -> dict[str, Array]:
        """What a fault may hit, by name; vectors are "vector.<name>"."""
        vectors = {f"vector.{name}": array for name, array in self.vectors().items()}
        return {"values": self.values, "columns": self.columns, "pointers": self.pointers, **vectors}

    def vector(self, values: Array) -> Array:
        """A vector of its own, with an address."""
        made = np.ascontiguousarray(values, np.float64).copy()
        self._at[id(made)] = self.core.place(made)
        return made

    def at(self, array: Array) -> int:
        """The address of a vector."""
        return self._at[id(array)]

    def multiply(self, x: Array, y: Array) -> None:
        """y = A x, seen by the checks."""
        key = (id(x), id(y))
        if key not in self._ats:
            self._ats[key] = np.array([*self._matrix_at, self.at(x), self.at(y)])
        product(self.m, self._ats[key], self.values, self.columns, self.pointers, x, y)
        if self.watch is not None:
            self.watch.product(x, y)
