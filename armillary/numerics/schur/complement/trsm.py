"""Solves L X = P Bᵀ in place and skips what lies above the stairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse

from armillary import arrays
from armillary.kernels import loop

from .factor import Ordering
from .method import moved, zeros_like
from .staircase import Staircase

Prune = Literal["none", "rows", "cols", "both"]


@dataclass(frozen=True)
class Chunk:
    """Rows [start, end) of the factor with `alive` columns: `rows` below it that get an update, from its columns `columns`."""

    start: int
    end: int
    alive: int
    rows: np.ndarray
    columns: np.ndarray
    #: Entries below the diagonal of these columns of the factor.
    entries: int


def chunks(ordering: Ordering, stairs: Staircase, cuts: np.ndarray, prune: Prune) -> list[Chunk]:
    """Returns the chunks between `cuts`, each with the rows and columns of its panel that pruning leaves."""
    found = []
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        part = slice(ordering.indptr[start], ordering.indptr[end])
        rows = ordering.rows[part]
        below = rows >= end
        kept, used = np.arange(end, ordering.n), np.arange(end - start)
        if prune in ("rows", "both"):
            kept = np.unique(rows[below])
        if prune in ("cols", "both"):
            lengths = np.diff(ordering.indptr[start : end + 1])
            used = np.unique(np.repeat(used, lengths)[below])
        if not below.any() and prune != "none":
            kept = used = kept[:0]
        found.append(Chunk(start, end, stairs.alive(end), kept, used, len(rows)))
    return found


def split_factor(lower: sparse.csc_array, x: arrays.Array, parts: list[Chunk], dense: bool) -> None:
    """Substitutes forward by chunks of the factor: each solves with the diagonal block, then updates the rows below that it touches.

    With `dense` the diagonal block and the pruned panel are dense; else both stay sparse, on the host.
    """
    if not dense:
        for part in parts:
            if part.alive:
                forward(lower.indptr, lower.indices, lower.data, part.start, part.end, x, 0, part.alive)
        return
    panels = _Panels(lower, x)
    for part in parts:
        if not part.alive:
            continue
        alive, width = part.alive, part.end - part.start
        panel = panels.dense(part)
        # The diagonal block is solved with as a whole, also where pruning leaves out columns of the panel below it.
        solved = arrays.solve_triangular(panel[:width], x[part.start : part.end, :alive])
        x[part.start : part.end, :alive] = solved
        if not len(part.rows):
            continue
        below = panel[width:]
        if len(part.columns) < width:
            used = _run(part.columns, x)
            below, solved = below[:, used], solved[used, :]
        x[_run(part.rows, x), :alive] -= below @ solved


class _Panels:
    """Dense panels of a sparse factor: a chunk's columns, of which the diagonal block and the rows that are kept."""

    def __init__(self, lower: sparse.csc_array, like: arrays.Array) -> None:
        n = lower.shape[0]
        self.like, self.indptr = like, lower.indptr
        self.rows = moved(lower.indices, like)
        self.columns = moved(np.repeat(np.arange(n, dtype=lower.indices.dtype), np.diff(lower.indptr)), like)
        self.values = moved(lower.data, like)
        #: Row of the panel by row of the factor; only the places of the current chunk are valid.
        self.target = moved(np.zeros(n, np.int64), like)

    def dense(self, part: Chunk) -> arrays.Array:
        width = part.end - part.start
        numbers = moved(np.arange(width + len(part.rows)), self.like)
        self.target[part.start : part.end] = numbers[:width]
        if len(part.rows):
            self.target[_run(part.rows, self.like)] = numbers[width:]
        entries = slice(int(self.indptr[part.start]), int(self.indptr[part.end]))
        panel = zeros_like(self.like, (width + len(part.rows), width))
        panel[self.target[self.rows[entries]], self.columns[entries] - part.start] = self.values[entries]
        return panel


def _run(rows: np.ndarray, like: arrays.Array) -> slice | arrays.Array:
    """Returns sorted indices, as a slice where they follow one another: a view instead of a copy."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else moved(rows, like)


def split_sides(lower: sparse.csc_array, x: arrays.Array, stairs: Staircase, cuts: np.ndarray, dense: bool) -> None:
    """Substitutes forward by chunks of the right-hand sides, each with the part of the factor from its first pivot on."""
    whole = dense_factor(lower, x) if dense else None
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
        first = int(stairs.pivots[start])
        if whole is None:
            forward(lower.indptr, lower.indices, lower.data, first, lower.shape[0], x, start, end)
        else:
            x[first:, start:end] = arrays.solve_triangular(whole[first:, first:], x[first:, start:end])


def dense_factor(lower: sparse.csc_array, like: arrays.Array) -> arrays.Array:
    """Returns all of L as a dense array (n×n)."""
    n = lower.shape[0]
    whole = zeros_like(like, (n, n))
    columns = np.repeat(np.arange(n, dtype=lower.indices.dtype), np.diff(lower.indptr))
    whole[moved(lower.indices, like), moved(columns, like)] = moved(lower.data, like)
    return whole


@loop
def forward(indptr, indices, data, start, end, x, first, last):
    """Eliminates columns [start, end) of a sparse lower factor (diagonal first in each) from columns [first, last) of x, in place."""
    for j in range(start, end):
        at = indptr[j]
        pivot = data[at]
        for c in range(first, last):
            x[j, c] /= pivot
        for entry in range(at + 1, indptr[j + 1]):
            i = indices[entry]
            value = data[entry]
            for c in range(first, last):
                x[i, c] -= value * x[j, c]
