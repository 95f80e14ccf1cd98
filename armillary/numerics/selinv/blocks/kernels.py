"""The dense kernels on one block.

For NumPy they call LAPACK and BLAS themselves: on blocks of a hundred rows the checks of `armillary.arrays` would take longer than the work
(0.1 ms per call against 0.02). CuPy and torch go through `armillary.arrays`.

Blocks lie by rows. LAPACK goes by columns and sees the transpose: U = Lᵀ in place of L.
"""

from __future__ import annotations

import functools
import re
from importlib import import_module
from typing import Any

import numpy as np

from armillary import arrays
from armillary.arrays.kinds import dtype_name
from armillary.errors import InputError


def adjoint(x: Any) -> Any:
    """Returns xᴴ of a matrix, as a view where x is real."""
    if isinstance(x, np.ndarray):
        return x.T if x.dtype.kind == "f" else x.conj().T
    turned = x.mT if arrays.kind_of(x) == "torch" else x.T
    return turned.conj() if dtype_name(x).startswith("complex") else turned


def cholesky(block: Any, name: str) -> Any:
    """Returns L of a block; where it is not positive definite, the error names the block of the whole matrix and the pivot."""
    if isinstance(block, np.ndarray):
        upper, minor = _lapack(block.dtype.char)[0](block.T, lower=0)
        if not minor and not np.isfinite(upper.diagonal()).all():
            minor = int(np.argmin(np.isfinite(upper.diagonal()))) + 1
        if minor:
            raise _not_definite(name, minor - 1)
        return upper.T
    try:
        return arrays.cholesky(block)
    except InputError as error:
        order = re.search(r"order (\d+)", str(error))
        raise _not_definite(name, int(order[1]) - 1 if order else None) from error


def right_solve(low: Any, x: Any) -> Any:
    """Returns x·L⁻ᴴ."""
    if isinstance(low, np.ndarray):
        return x if 0 in x.shape else _lapack(low.dtype.char)[2](1.0, low.T, x.T, lower=0, trans_a=2).T
    return arrays.solve_triangular(low, x, trans=_turned(low), side="right")


def left_solve(low: Any, x: Any, turned: bool = False) -> Any:
    """Returns L⁻¹·x, or with `turned` L⁻ᴴ·x."""
    if isinstance(low, np.ndarray):
        low = low.conj() if turned and low.dtype.kind == "c" else low
        return x if 0 in x.shape else _lapack(low.dtype.char)[2](1.0, low.T, x.T, side=1, lower=0, trans_a=int(turned)).T
    return arrays.solve_triangular(low, x, trans=_turned(low) if turned else "n")


def inverse_of(low: Any) -> Any:
    """Returns L⁻¹."""
    if isinstance(low, np.ndarray):
        return _lapack(low.dtype.char)[1](low.T, lower=0)[0].T
    xp = arrays.namespace(low)
    return arrays.solve_triangular(low, xp.eye(low.shape[0], dtype=low.dtype, device=arrays.device_of(low)))


def log_of_diagonal(low: Any) -> Any:
    """Returns Σ log L_kk, an array without dimensions."""
    if isinstance(low, np.ndarray):
        return np.log(low.diagonal().real).sum(dtype=np.float64)
    xp = arrays.namespace(low)
    diagonal = xp.linalg.diagonal(low)
    return xp.sum(xp.log(xp.real(diagonal) if dtype_name(low).startswith("complex") else diagonal))


def hermitian(x: Any) -> Any:
    """Returns the Hermitian part of x, without what rounding left beside it."""
    return (x + adjoint(x)) * 0.5


def _turned(low: Any) -> Any:
    return "c" if dtype_name(low).startswith("complex") else "t"


def _not_definite(name: str, pivot: int | None) -> InputError:
    where = "" if pivot is None else f" at pivot {pivot}"
    return InputError(f"{name}: not positive definite{where} (counted from 0)", where="factor")


@functools.cache
def _lapack(char: str) -> tuple[Any, Any, Any]:
    like = np.empty((1, 1), np.dtype(char))
    potrf, trtri = import_module("scipy.linalg.lapack").get_lapack_funcs(("potrf", "trtri"), (like,))
    (trsm,) = import_module("scipy.linalg.blas").get_blas_funcs(("trsm",), (like,))
    return potrf, trtri, trsm
