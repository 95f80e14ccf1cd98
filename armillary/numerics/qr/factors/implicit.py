"""Q without forming it: L on every rank and a triangle, Q = L T⁻¹."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from armillary import arrays
from armillary.errors import InputError

from ..ranks import rows
from ..ranks.team import Team
from .triangles import Array


@dataclass(frozen=True)
class ImplicitQ:
    """This rank's rows of Q as an operator: `q @ x` for x of n×k (or n) gives its rows of Q x, `q.H @ y` for y of m_i×k the whole Qᴴ y.

    x is the same on every rank; `q.H @ y` is an allreduce of n·k words and the same on every rank.
    """

    lower: arrays.Array
    #: T on the host: the product of the Cholesky factors.
    triangle: Array
    team: Team

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of this rank, and n."""
        return tuple(self.lower.shape)

    def __matmul__(self, x: arrays.Array) -> arrays.Array:
        if x.shape[0] != self.shape[1]:
            raise InputError(f"found {x.shape[0]} rows; expected {self.shape[1]}", where="Q @ x")
        inside = arrays.solve_triangular(rows.like(self.triangle, self.lower), x, upper=True)
        return self.lower @ inside

    @property
    def H(self) -> _Adjoint:
        """Qᴴ."""
        return _Adjoint(self)

    @property
    def T(self) -> _Adjoint:
        """Qᵀ of a real matrix."""
        if "complex" in str(self.lower.dtype):
            raise InputError("found a complex matrix; expected q.H", where="Qᵀ")
        return _Adjoint(self)

    def explicit(self) -> arrays.Array:
        """Returns this rank's rows of Q as an array."""
        q = arrays.namespace(self.lower).asarray(self.lower, copy=True)
        rows.divide(q, self.triangle)
        return q


@dataclass(frozen=True)
class _Adjoint:
    q: ImplicitQ

    def __matmul__(self, y: arrays.Array) -> Any:
        if y.shape[0] != self.q.shape[0]:
            raise InputError(f"found {y.shape[0]} rows; expected {self.q.shape[0]} as this rank has", where="Qᴴ @ y")
        wide = y if y.ndim == 2 else y[:, None]
        words = self.q.team.total(rows.inner(self.q.lower, wide))
        solved = import_module("scipy.linalg").solve_triangular(self.q.triangle, words, trans="C", check_finite=False)
        found = rows.like(solved, y)
        return found if y.ndim == 2 else found[:, 0]
