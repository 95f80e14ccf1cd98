"""The small matrices of a tall QR, n×n on the host: their factors, their signs, their condition."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Breakdown(ArithmeticError):
    """A factorisation that cannot go on: `column` (from 0, -1 where none is to blame) and why. No Q is returned."""

    def __init__(self, why: str, column: int = -1) -> None:
        super().__init__(why if column < 0 else f"column {column}: {why}")
        self.column = column


def lapack(name: str, a: Array) -> Any:
    """Returns a LAPACK function for the type of `a`."""
    (function,) = import_module("scipy.linalg.lapack").get_lapack_funcs((name,), (a,))
    return function


def unit(dtype: Any) -> float:
    """Returns half the distance from 1 to the next number of this type."""
    return float(np.finfo(dtype).eps) / 2


def upper_cholesky(gram: Array) -> Array:
    """Returns R with positive diagonal and gram = Rᴴ R, or raises `Breakdown` with the column whose pivot is not positive."""
    if not np.isfinite(gram).all():
        raise Breakdown("the Gram matrix is beyond the range of its type")
    factor, minor = lapack("potrf", gram)(gram, lower=0, clean=1)
    if minor:
        raise Breakdown("the Cholesky pivot is not positive", int(minor) - 1)
    return np.asarray(factor)


def inverse(r: Array) -> Array:
    """Returns the inverse of an upper triangular matrix without zeros on its diagonal."""
    found, _ = lapack("trtri", r)(r, lower=0)
    return np.asarray(np.triu(found))


def pivot_order(rows: Array) -> Array:
    """Says which rows partial pivoting takes, in order: as many as there are columns, or all."""
    most = min(rows.shape)
    if most == 0:
        return np.empty(0, np.int64)
    _, swaps, _ = lapack("getrf", rows)(rows)
    order = list(range(rows.shape[0]))
    for i, j in enumerate(swaps[:most].tolist()):
        order[i], order[j] = order[j], order[i]
    return np.array(order[:most], np.int64)


def upper_factor(rows: Array) -> tuple[Array, Array]:
    """Returns U of the pivoted LU of some rows, its diagonal made real and not negative, and the order of the rows."""
    packed, swaps, _ = lapack("getrf", rows)(rows)
    order = np.arange(rows.shape[0])
    for i, j in enumerate(swaps.tolist()):
        order[i], order[j] = order[j], order[i]
    n = rows.shape[1]
    u = np.triu(packed[:n])
    return u * phases(u).conj()[:, None], order[:n]


def phases(r: Array) -> Array:
    """Returns the signs (complex: the phases) of the diagonal; 1 for a zero."""
    diagonal = np.diagonal(r)
    size = np.abs(diagonal)
    return np.where(size == 0, 1, diagonal / np.where(size == 0, 1, size)).astype(r.dtype)


def real_diagonal(r: Array) -> Array:
    """Returns the upper triangle of r, without what roundoff left in the imaginary part of its diagonal."""
    upper = np.triu(r)
    if np.iscomplexobj(upper):
        np.fill_diagonal(upper, np.diagonal(upper).real)
    return upper


def conditioned(r: Array) -> float:
    """Returns an estimate of the condition of an upper triangular matrix in the 1-norm; infinite where it is singular."""
    if not np.abs(np.diagonal(r)).all():
        return float("inf")
    reciprocal, _ = lapack("trcon", r)(r, norm="1", uplo="U")
    return 1.0 / float(reciprocal) if reciprocal > 0 else float("inf")


def row_conditioned(r: Array) -> float:
    """Estimates the condition after each row is scaled to size one, which a product with the inverse loses against substitution."""
    if r.shape[0] == 1:
        return 1.0
    largest = np.abs(r).max(axis=1, keepdims=True)
    if not largest.all():
        return float("inf")
    scaled = np.asarray(r / largest, dtype=r.dtype)
    if not np.abs(np.diagonal(scaled)).all():
        return float("inf")
    reciprocal, _ = lapack("trcon", scaled)(scaled, norm="I", uplo="U")
    return 1.0 / float(reciprocal) if reciprocal > 0 else float("inf")


def packed(hermitian: Array) -> Array:
    """Returns the upper triangle side by side: n(n+1)/2 words."""
    return np.ascontiguousarray(hermitian[np.triu_indices(hermitian.shape[0])])


def unpacked(words: Array, n: int) -> Array:
    """Returns the Hermitian matrix of which `words` is the upper triangle."""
    upper = np.zeros((n, n), words.dtype)
    upper[np.triu_indices(n)] = words
    whole = upper + np.triu(upper, 1).conj().T
    if np.iscomplexobj(whole):
        np.fill_diagonal(whole, np.diagonal(whole).real)
    return whole
