"""Tiled Cholesky: potrf and trsm by LAPACK and BLAS, the updates syrk and gemm by PyTorch's matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel as compiled
from armillary.runtime.dataflow.apis.api import Kernel
from armillary.runtime.dataflow.apis.opencl import ClSource

from . import sources
from .application import Application, Operation

MIX = {"potrf": "blas", "trsm": "blas", "syrk": "torch", "gemm": "torch"}


def cholesky(
    n: int, tile: int, rng: np.random.Generator, mix: dict[str, str] | None = None, known: dict[str, Any] | None = None,
) -> Application:  # fmt: skip
    """The lower factor of a random positive definite matrix of `n` rows in tiles of `tile` rows, in place."""
    if n % tile:
        raise InputError(f"cholesky: found n = {n} and tiles of {tile}; expected a multiple")
    on = {**MIX, **(mix or {})}
    raw = rng.standard_normal((n, n))
    whole = raw @ raw.T / n + 2 * np.eye(n)
    nt = n // tile
    names = {(i, j): f"{i},{j}" for i in range(nt) for j in range(i + 1)}
    tiles = {
        at: np.ascontiguousarray(whole[at[0] * tile : (at[0] + 1) * tile, at[1] * tile : (at[1] + 1) * tile]) for at in names
    }  # fmt: skip
    probes = rng.standard_normal((n, 4))
    made: list[Operation] = []

    def add(kernel: Kernel, args: list[tuple[int, int]], extra: tuple[Any, ...] = ()) -> None:
        *reads, last = args
        call = (*(tiles[at] for at in args), *extra)
        made.append(Operation(kernel, on[kernel.name], call, tuple(names[at] for at in dict.fromkeys(reads)), (names[last],)))

    for k in range(nt):
        add(POTRF, [(k, k)], (tile,))
        for i in range(k + 1, nt):
            add(TRSM, [(k, k), (i, k)], (tile,))
        for i in range(k + 1, nt):
            for j in range(k + 1, i):
                add(GEMM, [(i, k), (j, k), (i, j)], (tile,))
            add(SYRK, [(i, k), (i, i)], (tile,))

    def error() -> float:
        factor = np.zeros((n, n))
        for (i, j), value in tiles.items():
            factor[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] = np.tril(value) if i == j else value
        # The residual on some vectors, which costs less than a product, in units of n times the rounding unit.
        residual = factor @ (factor.T @ probes) - whole @ probes
        return float(np.abs(residual).max() / np.abs(whole @ probes).max() / (n * 2.3e-16))

    return Application("cholesky", made, {names[at]: tiles[at] for at in names}, [(value, value.copy()) for value in tiles.values()], error)


def _potrf(a: np.ndarray, n: int) -> None:
    from scipy.linalg.lapack import dpotrf

    # LAPACK's columns are our rows: the upper factor of the transpose is the lower one.
    factor, info = dpotrf(a.T, lower=0, clean=1, overwrite_a=0)
    if info:
        raise ArithmeticError(f"the leading minor of order {info} is not positive")
    a[...] = factor.T


def _trsm(l: np.ndarray, b: np.ndarray, n: int) -> None:  # noqa: E741
    from scipy.linalg.blas import dtrsm

    b[...] = dtrsm(1.0, l.T, b.T, side=0, lower=0, trans_a=1).T


def _syrk(a: np.ndarray, c: np.ndarray, n: int) -> None:
    c -= a @ a.T


def _gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray, n: int) -> None:
    c -= a @ b.T


def _torch_potrf(a: Any, n: int) -> None:
    import torch

    torch.linalg.cholesky(a, out=a)


def _torch_trsm(l: Any, b: Any, n: int) -> None:  # noqa: E741
    import torch

    b.copy_(torch.linalg.solve_triangular(l.mT, b, upper=True, left=False))


def _torch_syrk(a: Any, c: Any, n: int) -> None:
    c.addmm_(a, a.mT, alpha=-1)


def _torch_gemm(a: Any, b: Any, c: Any, n: int) -> None:
    c.addmm_(a, b.mT, alpha=-1)


@compiled
def loop_potrf(a, n):  # type: ignore[no-untyped-def]
    """Cholesky's factor of a square array, in place."""
    for j in range(n):
        d = a[j, j]
        for k in range(j):
            d -= a[j, k] * a[j, k]
        d = np.sqrt(d)
        a[j, j] = d
        for i in range(j + 1, n):
            s = a[i, j]
            for k in range(j):
                s -= a[i, k] * a[j, k]
            a[i, j] = s / d
            a[j, i] = 0.0


@compiled
def loop_trsm(l, b, n):  # type: ignore[no-untyped-def]  # noqa: E741
    """Rows of `b` times the inverse of the transposed lower factor, in place."""
    for i in range(n):
        for j in range(n):
            s = b[i, j]
            for k in range(j):
                s -= b[i, k] * l[j, k]
            b[i, j] = s / l[j, j]


@compiled(fastmath=True)
def loop_gemm(a, b, c, n):  # type: ignore[no-untyped-def]
    """c − a bᵀ."""
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += a[i, k] * b[j, k]
            c[i, j] -= s


@compiled(fastmath=True)
def loop_syrk(a, c, n):  # type: ignore[no-untyped-def]
    """c − a aᵀ."""
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += a[i, k] * a[j, k]
            c[i, j] -= s


PRODUCT = """
__kernel void product(__global const double* a, __global const double* b, __global double* c, const int n) {
    const int i = get_global_id(0);
    for (int j = 0; j < n; j++) {
        double s = 0;
        for (int k = 0; k < n; k++) s += a[i * n + k] * b[j * n + k];
        c[i * n + j] -= s;
    }
}
"""
SQUARE = """
__kernel void square(__global const double* a, __global double* c, const int n) {
    const int i = get_global_id(0);
    for (int j = 0; j < n; j++) {
        double s = 0;
        for (int k = 0; k < n; k++) s += a[i * n + k] * a[j * n + k];
        c[i * n + j] -= s;
    }
}
"""


def _rows(*args: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    n = args[-1]
    return (n,), (min(16, n) if n % 16 == 0 else 1,)


def _one(*args: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (1,), (1,)


POTRF = Kernel(
    "potrf", {"blas": _potrf, "torch": _torch_potrf, "numba": loop_potrf, "opencl": ClSource(sources.POTRF, "potrf", _one)}
)  # fmt: skip
TRSM = Kernel("trsm", {"blas": _trsm, "torch": _torch_trsm, "numba": loop_trsm, "opencl": ClSource(sources.TRSM, "trsm", _rows)})
SYRK = Kernel("syrk", {"blas": _syrk, "torch": _torch_syrk, "numba": loop_syrk, "opencl": ClSource(SQUARE, "square", _rows)})
GEMM = Kernel("gemm", {"blas": _gemm, "torch": _torch_gemm, "numba": loop_gemm, "opencl": ClSource(PRODUCT, "product", _rows)})
