"""Factorisations, triangular solves, norms and symmetric products of matrices.

Matrices are two-dimensional arrays of float32, float64, complex64 or complex128; nothing is converted and no argument is overwritten.
"""

from __future__ import annotations

import math
import re
import warnings
from importlib import import_module
from typing import Any, Literal

import numpy as np

from ..errors import InputError, unknown
from .kinds import FLOATING, Array, checked, count_copied, device_of, dtype_name, namespace, on_accelerator, to_host

Trans = Literal["n", "t", "c"]


def cholesky(a: Array, upper: bool = False) -> Array:
    """L with a = L Lᴴ, or with `upper` U with a = Uᴴ U.

    Only the lower triangle of `a` (the upper one with `upper`) is read. The factorisation checks that `a` is positive definite; on a device
    it waits and reads back two numbers of 4 bytes, which `copied_bytes` counts.
    """
    kind = checked("cholesky", FLOATING, (2,), a=a)
    _square("cholesky", a)
    if a.shape[0] == 0:
        return namespace(a).asarray(a, copy=True)
    if on_accelerator(a):
        count_copied(8)
    if kind == "numpy":
        by_rows = not a.flags.f_contiguous
        # LAPACK works by columns, so it sees a matrix stored by rows as its transpose, whose factor is the transpose of the wanted one.
        factor, minor = _lapack("potrf", a)(a.T if by_rows else a, lower=upper == by_rows)
        factor = factor.T if by_rows else factor
    elif kind == "torch":
        factor, info = import_module("torch").linalg.cholesky_ex(a, upper=upper)
        minor = int(info)
    else:
        factor, minor = _cupy_cholesky(a.conj().T if upper else a)
    if minor := minor or _first_not_finite(factor):
        raise InputError(f"not positive definite: the leading minor of order {minor} is not positive and finite", where="cholesky: a")
    return factor.conj().T if kind == "cupy" and upper else factor


def _first_not_finite(factor: Array) -> int:
    """The first position on the diagonal, from 1, that holds a NaN or infinity, or else 0, because not every LAPACK stops at a NaN."""
    xp, n = namespace(factor), factor.shape[0]
    places = xp.arange(1, n + 1, dtype=xp.int32, device=device_of(factor))
    first = int(xp.min(xp.where(xp.isfinite(xp.linalg.diagonal(factor)), n + 1, places)))
    return first if first <= n else 0


def _cupy_cholesky(a: Array) -> tuple[Array, int]:
    cupy = import_module("cupy")
    try:
        with import_module("cupyx").errstate(linalg="raise"):
            return cupy.linalg.cholesky(a), 0
    except np.linalg.LinAlgError as error:
        order = re.search(r"devInfo = \[?(\d+)", str(error))
        if order is None:
            raise InputError("not positive definite", where="cholesky: a") from error
        return None, int(order[1])


def solve_triangular(
    a: Array, b: Array, upper: bool = False, trans: Trans = "n", unit: bool = False, side: Literal["left", "right"] = "left"
) -> Array:
    """x with op(a) x = b, or with side="right" x op(a) = b; op(a) is a, aᵀ or aᴴ for `trans` "n", "t" or "c".

    Only the named triangle of `a` is read, without its diagonal if `unit` (which is then taken as ones). `b` is a matrix or a vector. As in
    BLAS, a zero on the diagonal is not an error but gives infinities or NaNs, because a check would make every call wait for the device.
    """
    kind = checked("solve_triangular", FLOATING, (1, 2), a=a, b=b)
    checked("solve_triangular", FLOATING, (2,), a=a)
    _square("solve_triangular", a)
    _one_of("solve_triangular: trans", trans, ("n", "t", "c"))
    _one_of("solve_triangular: side", side, ("left", "right"))
    left, transposed = side == "left", trans != "n"
    if b.ndim == 1:
        # A vector is one column for both sides, because x op(a) = b is op(a)ᵀ x = b.
        return _solve_matrix(kind, a.conj() if trans == "c" else a, b[:, None], upper, transposed == left, unit, True)[:, 0]
    return _solve_matrix(kind, a.conj() if trans == "c" else a, b, upper, transposed, unit, left)


def _solve_matrix(kind: str, a: Array, b: Array, upper: bool, transposed: bool, unit: bool, left: bool) -> Array:
    if b.shape[0 if left else 1] != a.shape[0]:
        raise InputError(
            f"found shape {tuple(b.shape)}; expected {'rows' if left else 'columns'}: {a.shape[0]}, as a has", where="solve_triangular: b"
        )
    if 0 in b.shape:
        return namespace(b).asarray(b, copy=True)
    if kind == "torch":
        solve = import_module("torch").linalg.solve_triangular
        return solve(a.mT if transposed else a, b, upper=upper != transposed, left=left, unitriangular=unit)
    if kind == "cupy":
        solve = import_module("cupyx.scipy.linalg").solve_triangular
        rhs, turned = (b, transposed) if left else (b.T, not transposed)
        x = solve(a, rhs, trans=int(turned), lower=not upper, unit_diagonal=unit, check_finite=False)
        return x if left else x.T
    # BLAS works by columns; each of the two flips views a matrix stored by rows as its transpose, without a copy.
    if not a.flags.f_contiguous:
        a, upper, transposed = a.T, not upper, not transposed
    by_rows = not b.flags.f_contiguous
    if by_rows:
        b, left, transposed = b.T, not left, not transposed
    (trsm,) = import_module("scipy.linalg.blas").get_blas_funcs(("trsm",), (a, b))
    x = trsm(1.0, a, b, side=int(not left), lower=int(not upper), trans_a=int(transposed), diag=int(unit))
    return x.T if by_rows else x


def lu(a: Array) -> tuple[Array, Array, Array]:
    """(perm, l, u) with a[perm] = l u by partial pivoting: l has a unit diagonal and entries of at most 1 in size, and perm is int64.

    For `a` of m×n and k = min(m, n), l is m×k and u is k×n. A singular `a` has factors on the host; on a CUDA device CuPy returns NaNs for
    it, and PyTorch returns factors whose product may differ from `a[perm]`. On a device the k pivots (4 bytes each) are read back to turn
    the swaps into a permutation; `copied_bytes` counts them.
    """
    kind = checked("lu", FLOATING, (2,), a=a)
    xp, (rows, columns) = namespace(a), a.shape
    rank = min(rows, columns)
    if rank == 0:
        packed, pivots = a, np.empty(0, np.int64)
    elif kind == "numpy":
        packed, pivots, _ = _lapack("getrf", a)(a)
    elif kind == "torch":
        packed, from_one, _ = import_module("torch").linalg.lu_factor_ex(a)
        pivots = to_host(from_one) - 1
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # A singular matrix is not an error here.
            packed, on_device = import_module("cupyx.scipy.linalg").lu_factor(a, check_finite=False)
        pivots = to_host(on_device)
    order = list(range(rows))
    for i, j in enumerate(pivots.tolist()):
        order[i], order[j] = order[j], order[i]
    perm = xp.asarray(np.asarray(order, np.int64), device=device_of(a))
    lower = xp.tril(packed[:, :rank], k=-1) + xp.eye(rows, rank, dtype=a.dtype, device=device_of(a))
    return perm, lower, xp.triu(packed[:rank, :])


def qr(a: Array) -> tuple[Array, Array]:
    """The reduced (q, r) with a = q r: q is m×k with orthonormal columns and r is upper triangular, k×n, with k = min(m, n). The library
    chooses the signs.
    """
    checked("qr", FLOATING, (2,), a=a)
    xp, (rows, columns) = namespace(a), a.shape
    if min(rows, columns) == 0:
        return xp.zeros((rows, 0), dtype=a.dtype, device=device_of(a)), xp.zeros((0, columns), dtype=a.dtype, device=device_of(a))
    q, r = xp.linalg.qr(a, mode="reduced")
    return q, r


def norm(x: Array, order: float | None = None) -> Array:
    """The norm of a vector or matrix, as a zero-dimensional array on the same device, in the real dtype of x.

    Without `order`, it is the root of the sum of squares of all entries, for any number of dimensions (the Frobenius norm of a matrix).
    With 1, 2 or infinity, it is the norm of a vector, or the operator norm of a matrix (the largest column sum, singular value or row sum).
    Squares are computed without scaling, so entries above the square root of the largest number overflow.
    """
    checked("norm", FLOATING, None if order is None else (1, 2), x=x)
    if order not in (None, 1, 2, math.inf):
        raise InputError(f"found {order}; expected 1, 2, infinity or none", where="norm: order")
    xp = namespace(x)
    if 0 in x.shape:
        return xp.asarray(abs(xp.zeros((), dtype=x.dtype, device=device_of(x))))
    if order is None or x.ndim == 1:
        return xp.asarray(xp.linalg.vector_norm(x, ord=2 if order is None else order))
    return xp.asarray(xp.linalg.matrix_norm(x, ord=order))


def syrk(a: Array, trans: Trans = "n") -> Array:
    """a aᵀ, aᵀ a or aᴴ a for `trans` "n", "t" or "c": both triangles, exactly symmetric (Hermitian for "c", with a real diagonal)."""
    kind = checked("syrk", FLOATING, (2,), a=a)
    _one_of("syrk: trans", trans, ("n", "t", "c"))
    xp, hermitian = namespace(a), trans == "c" and dtype_name(a).startswith("complex")
    if kind == "numpy" and not hermitian:
        # If a matrix is contiguous, NumPy computes its product with its own transpose by BLAS syrk, at half the work of a general product.
        whole = a if a.flags.f_contiguous else np.ascontiguousarray(a)
        if 0 not in a.shape and 1 not in a.shape:
            return whole @ whole.T if trans == "n" else whole.T @ whole
    product = a @ a.T if trans == "n" else (a.conj() if hermitian else a).T @ a
    below = xp.tril(product, k=-1)
    diagonal = xp.linalg.diagonal(product)
    if hermitian:
        diagonal = xp.astype(xp.real(diagonal), a.dtype)
    identity = xp.eye(product.shape[0], dtype=xp.bool, device=device_of(a))
    return xp.where(identity, diagonal, below + (below.conj() if hermitian else below).T)


def _lapack(name: str, a: np.ndarray) -> Any:
    (function,) = import_module("scipy.linalg.lapack").get_lapack_funcs((name,), (a,))
    return function


def _square(where: str, a: Array) -> None:
    if a.shape[0] != a.shape[1]:
        raise InputError(f"found shape {tuple(a.shape)}; expected a square matrix", where=f"{where}: a")


def _one_of(where: str, found: str, known: tuple[str, ...]) -> None:
    if found not in known:
        raise unknown("choice", str(found), known, where=where)
