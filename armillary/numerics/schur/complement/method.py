"""The methods of every way to a Schur complement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from armillary import arrays
from armillary.arena import Technique
from armillary.kernels import loop

from .factor import Factor, Ordering


@dataclass(frozen=True)
class Work:
    """Floating-point operations of one assembly: the triangular solve, the product, and how many off-diagonal products it takes."""

    solve: int
    product: int
    updates: int = 0

    @property
    def total(self) -> int:
        """Operations of both parts."""
        return self.solve + self.product


class Method(Technique):
    """One way to F = B K⁻¹ Bᵀ from the factor of K. Subclasses are frozen dataclasses whose fields are the parameters."""

    #: Whether F is assembled; else it is applied through the factor.
    assembles: bool = True
    #: Whether the panels may lie on a device; else it works on the host and the result is moved.
    on_device: bool = True

    def plan(self, ordering: Ordering, b: sparse.csr_array) -> Any:
        """Makes the plan, which depends on patterns alone and is used for every set of values."""
        raise NotImplementedError

    def assemble(self, factor: Factor, b: sparse.csr_array, plan: Any, like: arrays.Array) -> arrays.Array:
        """Returns F (m×m, symmetric, rows as B's) as an array of the kind and on the device of `like`."""
        raise NotImplementedError

    def work(self, plan: Any) -> Work:
        """Returns the exact count of operations that `assemble` makes with this plan."""
        raise NotImplementedError


def placed(b: sparse.csr_array, position: np.ndarray, place: np.ndarray, like: arrays.Array) -> arrays.Array:
    """Returns P Bᵀ as a dense array (n×m, rows in a row's own order) with row j of B in column `place[j]`."""
    rows = position[b.indices]
    columns = np.repeat(place, np.diff(b.indptr))
    x = zeros_like(like, (len(position), b.shape[0]))
    x[moved(rows, like), moved(columns, like)] = moved(b.data, like)
    return x


def zeros_like(like: arrays.Array, shape: tuple[int, ...]) -> arrays.Array:
    """Returns zeros of float64 of this kind on this device."""
    xp = arrays.namespace(like)
    return xp.zeros(shape, dtype=xp.float64, device=arrays.device_of(like))


def moved(x: np.ndarray, like: arrays.Array) -> arrays.Array:
    """Returns a host array as the kind and on the device of `like`; the array itself for NumPy."""
    if isinstance(like, np.ndarray):
        return x
    return arrays.namespace(like).asarray(np.ascontiguousarray(x), device=arrays.device_of(like))


def mirrored(f: arrays.Array, place: np.ndarray | None = None) -> arrays.Array:
    """Returns the symmetric matrix with the lower triangle of `f`; with `place`, row and column j are `f`'s row and column place[j]."""
    if isinstance(f, np.ndarray):
        return _mirrored(f, np.arange(len(f)) if place is None else place)
    xp = arrays.namespace(f)
    whole = xp.tril(f) + xp.tril(f, k=-1).T
    if place is None:
        return whole
    places = moved(place, f)
    return whole[places, :][:, places]


@loop
def _mirrored(f, place):
    m = len(place)
    whole = np.empty((m, m))
    # Tiles keep both the rows that are written and the columns that are written in cache.
    for top in range(0, m, 64):
        for left in range(0, top + 1, 64):
            for i in range(top, min(top + 64, m)):
                for j in range(left, min(left + 64, i + 1)):
                    a, b = place[i], place[j]
                    value = f[a, b] if a >= b else f[b, a]
                    whole[i, j] = value
                    whole[j, i] = value
    return whole
