"""Stiffness, load and kernel of heat transfer and linear elasticity with linear elements."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy import sparse

Physics = Literal["heat", "elasticity"]
PHYSICS = ("heat", "elasticity")
POISSON = 0.3


def unknowns(physics: Physics, dimension: int) -> int:
    """Returns the number of unknowns per node: its temperature, or its displacement along each axis."""
    return 1 if physics == "heat" else dimension


def stiffness(points: np.ndarray, cells: np.ndarray, physics: Physics, coefficient: np.ndarray) -> sparse.csc_array:
    """Returns K of these cells: conductivity or Young's modulus `coefficient` for each, Poisson's ratio 0.3.

    Elasticity in the plane is plane strain. Unknowns of one node follow one another.
    """
    nodes, d = points.shape
    gradients, volumes = _gradients(points[cells])
    weights = coefficient * volumes
    if physics == "heat":
        local = np.einsum("c,cia,cja->cij", weights, gradients, gradients)
        index = cells
    else:
        shear = 1 / (2 * (1 + POISSON))
        bulk = POISSON / ((1 + POISSON) * (1 - 2 * POISSON))
        # a(u, v) = ∫ λ div u div v + 2 μ ε(u):ε(v), for u = φ_i e_a and v = φ_j e_b.
        dot = np.einsum("cia,cja->cij", gradients, gradients)
        local = bulk * np.einsum("cia,cjb->ciajb", gradients, gradients) + shear * np.einsum("cib,cja->ciajb", gradients, gradients)
        local += shear * np.einsum("cij,ab->ciajb", dot, np.eye(d))
        local = (weights[:, None, None, None, None] * local).reshape(len(cells), d * (d + 1), d * (d + 1))
        index = (d * cells[:, :, None] + np.arange(d)).reshape(len(cells), -1)
    size = index.shape[1]
    rows, columns = np.repeat(index, size, axis=1).ravel(), np.tile(index, (1, size)).ravel()
    n = nodes * unknowns(physics, d)
    k = sparse.coo_array((local.ravel(), (rows, columns)), shape=(n, n)).tocsc()
    k.sum_duplicates()
    # Sums over the same cells in another order may differ in the last bit.
    half = k.T.tocsc()
    half.sort_indices()
    return sparse.csc_array(((k.data + half.data) / 2, k.indices, k.indptr), shape=k.shape)


def load(points: np.ndarray, cells: np.ndarray, physics: Physics) -> np.ndarray:
    """Returns f of a constant source 1 (heat) or force −1 along the last axis (elasticity), shared equally by the nodes of a cell."""
    nodes, d = points.shape
    _, volumes = _gradients(points[cells])
    by_node = np.bincount(cells.ravel(), np.repeat(volumes / (d + 1), d + 1), minlength=nodes)
    if physics == "heat":
        return by_node
    f = np.zeros((nodes, d))
    f[:, -1] = -by_node
    return f.ravel()


def _gradients(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns gradients of the corners' hat functions, float64[cells, d + 1, d], and volumes; `corners` is float64[cells, d + 1, d]."""
    d = corners.shape[2]
    edges = corners[:, 1:] - corners[:, :1]
    inverse = np.linalg.inv(edges)
    rest = np.swapaxes(inverse, 1, 2)
    return np.concatenate((-rest.sum(axis=1, keepdims=True), rest), axis=1), abs(np.linalg.det(edges)) / math.factorial(d)


def kernel(points: np.ndarray, physics: Physics) -> np.ndarray:
    """Returns R, columns that K maps to zero: the constant, or translations and rotations about the middle; not orthonormal."""
    nodes, d = points.shape
    if physics == "heat":
        return np.ones((nodes, 1))
    centred = points - points.mean(axis=0)
    turns = [(0, 1)] if d == 2 else [(0, 1), (1, 2), (0, 2)]
    r = np.zeros((nodes, d, d + len(turns)))
    for a in range(d):
        r[:, a, a] = 1.0
    for at, (a, b) in enumerate(turns):
        r[:, a, d + at], r[:, b, d + at] = -centred[:, b], centred[:, a]
    return r.reshape(nodes * d, -1)


def fixing_nodes(points: np.ndarray, physics: Physics) -> np.ndarray:
    """Returns nodes that hold a body still: the one nearest the middle (heat), two far apart (plane), three far from one line (space)."""
    away = np.linalg.norm(points - points.mean(axis=0), axis=1)
    if physics == "heat":
        return np.array([away.argmin()])
    first = int(away.argmax())
    second = int(np.linalg.norm(points - points[first], axis=1).argmax())
    if points.shape[1] == 2:
        return np.array([first, second])
    along = points[second] - points[first]
    off_line = np.linalg.norm(np.cross(points - points[first], along), axis=1)
    return np.array([first, second, int(off_line.argmax())])
