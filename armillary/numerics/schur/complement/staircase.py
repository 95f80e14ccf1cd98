"""The staircase is made of right-hand sides, sorted by the row at which their forward substitution begins, and is cut into chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse

from armillary.errors import InputError

Partition = Literal["size", "count", "minimum-work"]


@dataclass(frozen=True)
class Staircase:
    """Columns of P Bᵀ sorted by pivot.

    `columns[c]` is the row of B that stands in sorted column c, `place` its inverse. `pivots[c]` is the first nonzero row of sorted column
    c, `trails[i]` the last column whose pivot is at most i (−1 for none). Both never decrease.
    """

    columns: np.ndarray
    place: np.ndarray
    pivots: np.ndarray
    trails: np.ndarray

    def alive(self, end: int) -> int:
        """Returns how many columns have begun before row `end`."""
        return int(self.trails[end - 1]) + 1


def staircase(b: sparse.csr_array, position: np.ndarray) -> Staircase:
    """Returns the staircase of B's rows once unknown i stands at `position[i]`; columns with one pivot keep their order."""
    lengths = np.diff(b.indptr)
    if (lengths == 0).any():
        raise InputError(f"row {int(np.argmin(lengths))} has no entry; expected at least one in each", where="B")
    if not len(lengths):
        none = np.empty(0, np.int64)
        return Staircase(none, none, none, np.full(len(position), -1, np.int64))
    first = np.minimum.reduceat(position[b.indices], b.indptr[:-1])
    columns = np.argsort(first, kind="stable")
    pivots = first[columns]
    trails = np.searchsorted(pivots, np.arange(len(position)), side="right") - 1
    assert (np.diff(pivots) >= 0).all()
    assert (np.diff(trails) >= 0).all()
    return Staircase(columns, np.argsort(columns), pivots, trails)


def minimum_work(count: int) -> np.ndarray:
    """Returns p₀ … p_count of the recurrence p₀ = 0, p₁ = 1, p_{i+1} = √(p_i (3 p_i − 2 p_{i−1})): where to cut a triangle for least work.

    With squares of side p_i that cover a triangle, Σ (p_i − p_{i−1}) p_i² is least where its derivatives vanish.
    """
    p = [0.0, 1.0]
    while len(p) <= count:
        p.append(math.sqrt(p[-1] * (3 * p[-1] - 2 * p[-2])))
    return np.array(p[: count + 1])


def bounds(n: int, partition: Partition, number: int, reverse: bool = False) -> np.ndarray:
    """Returns where to cut n rows or columns, from 0 to n.

    `number` is the size of a chunk for `size`, else the number of chunks. Minimum work makes the first chunk the largest, or with
    `reverse`, for triangular solves, the last. Bounds that fall together after rounding are one.
    """
    if n == 0:
        return np.zeros(1, np.int64)
    if partition == "size":
        return np.append(np.arange(0, n, number), n)
    if partition == "count":
        return np.unique(np.round(np.linspace(0, n, number + 1)).astype(np.int64))
    p = minimum_work(number)
    shares = p / p[-1]
    return np.unique(np.round(n * (1 - shares[::-1] if reverse else shares)).astype(np.int64))
