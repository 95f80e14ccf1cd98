"""Drawn matrices: grids, bands, meshes and graphs.

All but the web graph are symmetric and positive definite, as one implicit step of a diffusion gives them: a Laplacian plus a twentieth of
its mean diagonal, so that solvers need some tens of iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .csr import Csr

Array = np.ndarray[Any, Any]
SHIFT = 0.05


def poisson(shape: tuple[int, ...], weights: tuple[float, ...] | None = None, shift: float = SHIFT) -> Csr:
    """The stencil of 2 d neighbours on a grid; `weights` are the conductances along the axes."""
    number = np.arange(int(np.prod(shape))).reshape(shape)
    pairs, size = [], []
    for axis, weight in enumerate(weights or (1.0,) * len(shape)):
        low, high = np.moveaxis(number, axis, 0)[:-1].ravel(), np.moveaxis(number, axis, 0)[1:].ravel()
        pairs.append(np.stack([low, high]))
        size.append(np.full(len(low), weight))
    # The diagonal of a whole stencil, as with a boundary whose values are known.
    full = 2 * float(sum(weights or (1.0,) * len(shape)))
    return _laplacian(number.size, np.concatenate(pairs, 1), np.concatenate(size), shift, np.full(number.size, full))


def poisson_2d(rows: int, rng: np.random.Generator) -> Csr:
    """The five-point stencil on a square."""
    side = max(2, round(rows**0.5))
    return poisson((side, side))


def poisson_3d(rows: int, rng: np.random.Generator) -> Csr:
    """The seven-point stencil on a cube."""
    side = max(2, round(rows ** (1 / 3)))
    return poisson((side, side, side))


def anisotropic(rows: int, rng: np.random.Generator) -> Csr:
    """The five-point stencil with a tenth of the conductance along one axis."""
    side = max(2, round(rows**0.5))
    return poisson((side, side), (1.0, 0.1))


def banded(rows: int, rng: np.random.Generator) -> Csr:
    """Random couplings to eight of the next 24 rows each."""
    offset: Array = np.argsort(rng.random((rows, 24)), 1)[:, :8] // 2 * 2 + rng.integers(1, 3, (rows, 8))
    low = np.repeat(np.arange(rows), 8)
    pairs = np.stack([low, low + offset.ravel()])
    weight = rng.uniform(0.1, 1.0, pairs.shape[1])
    kept = pairs[1] < rows
    return _laplacian(rows, pairs[:, kept], weight[kept], SHIFT)


def delaunay(rows: int, rng: np.random.Generator) -> Csr:
    """The edges of a Delaunay triangulation of random points, with random conductances: an unstructured mesh, numbered by strips."""
    from scipy.spatial import Delaunay

    points = rng.random((rows, 2))
    strips = max(1, round(rows**0.5))
    points = points[np.lexsort((points[:, 1], np.floor(points[:, 0] * strips)))]
    corners = Delaunay(points).simplices
    pairs = np.unique(np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]]), 1), axis=0).T
    return _laplacian(rows, pairs, rng.uniform(0.5, 1.5, pairs.shape[1]), SHIFT)


def rmat(rows: int, rng: np.random.Generator) -> Csr:
    """The Laplacian of a graph whose degrees vary widely: R-MAT with 0.45, 0.22, 0.22, 0.11 and three edges per vertex."""
    levels = max(1, int(rows - 1).bit_length())
    pairs = np.zeros((2, 6 * rows), np.int64)
    for _ in range(levels):
        corner = np.searchsorted(np.array([0.45, 0.67, 0.89]), rng.random(pairs.shape[1]), "right")
        pairs = 2 * pairs + np.stack([corner >> 1, corner & 1])
    kept = (pairs.max(0) < rows) & (pairs[0] != pairs[1])
    pairs = np.sort(pairs[:, kept], 0)[:, : 3 * rows]
    # A path through all vertices leaves none of them alone.
    path = np.stack([np.arange(rows - 1), np.arange(1, rows)])
    pairs = np.unique(np.concatenate([pairs, path], 1), axis=1)
    return _laplacian(rows, pairs, rng.uniform(0.5, 1.5, pairs.shape[1]), SHIFT)


def web(rows: int, rng: np.random.Generator) -> Csr:
    """A directed graph whose pages link to popular ones, with diagonal; not symmetric."""
    count = np.minimum(1 + (1 / np.maximum(rng.random(rows), 1e-3)).astype(np.int64), max(1, rows // 4))
    source = np.repeat(np.arange(rows), count + 2)
    # A square of a uniform number is dense near 0, where the popular pages are.
    target = (rng.random(len(source)) * rng.random(len(source)) * rows).astype(np.int64)
    keys = np.unique(np.concatenate([source * rows + target, np.arange(rows) * (rows + 1)]))
    source, target = keys // rows, keys % rows
    weight = rng.uniform(0.5, 1.5, len(keys))
    off = source != target
    total = np.bincount(source[off], weight[off], rows)
    weight[~off] = 1.25 * total + 1.0
    weight[off] *= -1
    return _csr(rows, source, target, weight)


KINDS: dict[str, Callable[[int, np.random.Generator], Csr]] = {
    "poisson-2d": poisson_2d, "poisson-3d": poisson_3d, "anisotropic": anisotropic, "banded": banded, "delaunay": delaunay, "rmat": rmat,
    "web": web,
}  # fmt: skip


def _laplacian(rows: int, pairs: Array, weight: Any, shift: Any, diagonal: Array | None = None) -> Csr:
    low, high = pairs
    total = np.bincount(low, weight, rows) + np.bincount(high, weight, rows) if diagonal is None else diagonal
    total = total + shift * float(total.sum()) / rows
    every = np.arange(rows)
    return _csr(rows, np.concatenate([low, high, every]), np.concatenate([high, low, every]), np.concatenate([-weight, -weight, total]))


def _csr(rows: int, row: Array, column: Array, values: Array) -> Csr:
    from scipy.sparse import coo_array

    return Csr.of(coo_array((values, (row, column)), shape=(rows, rows)))
