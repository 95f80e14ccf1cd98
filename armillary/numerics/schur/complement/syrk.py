"""Computes the lower triangle of XᵀX and skips what lies above the stairs."""

from __future__ import annotations

import numpy as np

from armillary import arrays

from .method import zeros_like
from .staircase import Staircase

#: Columns of F that are computed together; the block on the diagonal is computed in full, of which half is wasted.
BLOCK = 256


def squares(x: arrays.Array, stairs: Staircase, cuts: np.ndarray) -> arrays.Array:
    """Computes F by chunks of rows of X, of which each adds its square over the columns that are alive in it."""
    f = zeros_like(x, (x.shape[1], x.shape[1]))
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        add_lower_product(f, x[start:end, : stairs.alive(end)])
    return f


def stairs_by_columns(x: arrays.Array, stairs: Staircase, cuts: np.ndarray) -> arrays.Array:
    """Computes F by chunks of columns of X, each from the row of its first pivot: the block on the diagonal and the part to its left."""
    f = zeros_like(x, (x.shape[1], x.shape[1]))
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        first = int(stairs.pivots[start])
        add_lower_product(f[start:end, start:end], x[first:, start:end])
        if start:
            f[start:end, :start] = x[first:, start:end].T @ x[first:, :start]
    return f


def add_lower_product(f: arrays.Array, x: arrays.Array) -> None:
    """Adds XᵀX to the lower triangle of `f` (some entries above it may change too), in place."""
    alive = x.shape[1]
    for start in range(0, alive, BLOCK):
        end = min(start + BLOCK, alive)
        f[start:alive, start:end] += x[:, start:].T @ x[:, start:end]
