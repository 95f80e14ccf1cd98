"""Symmetric positive definite systems for conjugate gradients, from a built-in Poisson problem or a MatrixMarket file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.files import file_digest
from armillary.files.matrices import read_sparse

#: The most rows that a file may have.
_MOST_ROWS = 50_000_000

Parts = tuple[Any, Any, Any]


@lru_cache(maxsize=2)
def poisson(n: int) -> Parts:
    """The 27-point Poisson matrix of an n x n x n grid, with 26 on the diagonal and -1 for each neighbour, corners included.

    It has compressed rows: where each row begins, the columns in ascending order, and the values.
    """
    point = np.arange(n**3)
    where = np.stack((point // (n * n), point // n % n, point % n), axis=1)[:, None, :]
    steps = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(1, 27, 3)
    there = where + steps
    inside = ((there >= 0) & (there < n)).all(axis=2)
    columns = (there @ np.array([n * n, n, 1]))[inside]
    values = np.broadcast_to(np.where((steps == 0).all(axis=2), 26.0, -1.0), inside.shape)[inside]
    return np.concatenate(([0], np.cumsum(inside.sum(axis=1)))), columns, values


@lru_cache(maxsize=2)
def _matrix_market(path: str, content: str) -> Parts:
    from scipy import sparse

    found = read_sparse(path)
    rows, columns = found.shape
    if rows != columns or not 1 <= rows <= _MOST_ROWS:
        raise InputError(f"found {rows} x {columns}; expected a square matrix of 1 to {_MOST_ROWS} rows", where=path)
    if found.dtype.kind == "c":
        raise InputError("found complex numbers; expected real ones", where=path)
    matrix = sparse.csr_array(found).astype(np.float64)
    if abs(matrix - matrix.T).max() > 1e-12 * abs(matrix).max():
        raise InputError("found a matrix that is not symmetric; expected a symmetric positive definite one", where=path)
    if (matrix.diagonal() <= 0).any():
        raise InputError("found a diagonal entry that is not positive; expected a symmetric positive definite matrix", where=path)
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data


def matrix_market(path: str) -> Parts:
    """Reads a symmetric matrix with a positive diagonal from a MatrixMarket file, as compressed rows; again when the file changed."""
    return _matrix_market(path, file_digest(Path(path)))


def system(grid: int, path: str | None) -> tuple[Parts, Any]:
    """The matrix as compressed rows, and a right-hand side whose solution is smooth but not constant."""
    starts, columns, values = poisson(grid) if path is None else matrix_market(path)
    products = np.concatenate((values * np.cos(columns * 0.37), [0.0]))
    return (starts, columns, values), np.where(np.diff(starts) > 0, np.add.reduceat(products, starts[:-1]), 0.0)
