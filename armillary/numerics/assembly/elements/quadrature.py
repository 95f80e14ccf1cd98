"""Points and weights of integration on the reference triangle, tetrahedron, square and cube, and the shape functions there.

The triangle has the corners (0,0), (1,0), (0,1), the tetrahedron likewise, square and cube are [0,1]^d. Rules: Strang and Fix 1973
(degree 2), Dunavant 1985 (degree 4 on the triangle), Gauss-Jacobi in collapsed coordinates (degree 5 on the tetrahedron; Stroud 1971).
"""

from __future__ import annotations

import itertools

import numpy as np

#: Corners of square and cube in the order of VTK: round the bottom, then round the top.
SQUARE = np.array([(0, 0), (1, 0), (1, 1), (0, 1)], float)
CUBE = np.array([(x, y, z) for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))], float)
#: Edges whose middles are the further nodes of quadratic simplices, in the order of VTK.
EDGES = {2: ((0, 1), (1, 2), (2, 0)), 3: ((0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3))}


def rule(simplex: bool, dimension: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points float64[q, d] and weights float64[q], exact for polynomials of `degree` (1, 2 or 4; per variable 3 on square and
    cube).
    """
    if not simplex:
        line, weight = np.polynomial.legendre.leggauss(2)
        points = np.array(list(itertools.product((line + 1) / 2, repeat=dimension)))
        return points, np.full(len(points), float(weight[0] / 2) ** dimension)
    volume = 0.5 if dimension == 2 else 1 / 6
    if degree <= 1:
        return np.full((1, dimension), 1 / (dimension + 1)), np.array([volume])
    if degree <= 2:
        inner = 1 / 6 if dimension == 2 else (5 - np.sqrt(5)) / 20
        points = np.full((dimension + 1, dimension), inner)
        points[range(1, dimension + 1), range(dimension)] = 1 - dimension * inner
        return points, np.full(dimension + 1, volume / (dimension + 1))
    return _dunavant() if dimension == 2 else _collapsed()


def _dunavant() -> tuple[np.ndarray, np.ndarray]:
    root = np.sqrt(38 - 44 * np.sqrt(0.4))
    spread = np.sqrt(213125 - 53320 * np.sqrt(10))
    points, weights = [], []
    for sign in (1, -1):
        inner, weight = (8 - np.sqrt(10) + sign * root) / 18, (620 + sign * spread) / 3720
        points += [(inner, inner), (1 - 2 * inner, inner), (inner, 1 - 2 * inner)]
        weights += [weight / 2] * 3
    return np.array(points), np.array(weights)


def _collapsed() -> tuple[np.ndarray, np.ndarray]:
    from scipy.special import roots_jacobi

    lines = []
    for power in (0, 1, 2):
        at, weight = roots_jacobi(3, power, 0)
        lines.append(((at + 1) / 2, weight / 2 ** (power + 1)))
    points, weights = [], []
    for (u, wu), (v, wv), (w, ww) in itertools.product(*(list(zip(*line)) for line in lines)):
        points.append((w, v * (1 - w), u * (1 - v) * (1 - w)))
        weights.append(wu * wv * ww)
    return np.array(points), np.array(weights)


def shapes(simplex: bool, dimension: int, order: int, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns shape functions float64[q, nodes] and their derivatives float64[q, nodes, d] at reference points float64[q, d]."""
    if not simplex:
        return _multilinear(SQUARE if dimension == 2 else CUBE, points)
    corner = np.concatenate([1 - points.sum(axis=1, keepdims=True), points], axis=1)
    slope = np.concatenate([-np.ones((1, dimension)), np.eye(dimension)])
    slopes = np.broadcast_to(slope, (len(points), *slope.shape))
    if order == 1:
        return corner, slopes.copy()
    values = [corner * (2 * corner - 1)]
    derivatives = [(4 * corner - 1)[:, :, None] * slopes]
    for a, b in EDGES[dimension]:
        values.append(4 * (corner[:, a] * corner[:, b])[:, None])
        derivatives.append(4 * (corner[:, a, None] * slopes[:, b] + corner[:, b, None] * slopes[:, a])[:, None])
    return np.concatenate(values, axis=1), np.concatenate(derivatives, axis=1)


def _multilinear(corners: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    factors = np.where(corners > 0, points[:, None], 1 - points[:, None])
    signs = np.where(corners > 0, 1.0, -1.0)
    values = factors.prod(axis=2)
    slopes = np.empty((len(points), *corners.shape))
    for i in range(corners.shape[1]):
        slopes[:, :, i] = signs[:, i] * np.delete(factors, i, axis=2).prod(axis=2)
    return values, slopes
