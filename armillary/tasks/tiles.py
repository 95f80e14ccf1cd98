"""The bodies of tiled factorisations, which work in place on square tiles of one matrix (lower triangle, row-major views)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular


def potrf(a: np.ndarray) -> None:
    """a ← its lower Cholesky factor."""
    a[...] = cholesky(a, lower=True)


def trsm(diagonal: np.ndarray, a: np.ndarray) -> None:
    """a ← a · L⁻ᵀ, where L is the factor of the diagonal tile."""
    a[...] = solve_triangular(diagonal, a.T, lower=True).T


def syrk(row: np.ndarray, a: np.ndarray) -> None:
    """a ← a − row · rowᵀ."""
    a -= row @ row.T


def gemm(left: np.ndarray, right: np.ndarray, a: np.ndarray) -> None:
    """a ← a − left · rightᵀ."""
    a -= left @ right.T
