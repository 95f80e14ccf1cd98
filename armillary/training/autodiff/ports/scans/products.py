"""Products without loops."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import jax
import jax.numpy as jnp

from ..statements.products import atax, bicg, doitgen, gemm, gemver, gesummv, k2mm, k3mm, mvt

__all__ = [
    "atax", "bicg", "correlation", "covariance", "doitgen", "gemm", "gemver", "gesummv", "k2mm", "k3mm", "mvt", "spmv", "symm", "syr2k",
    "syrk", "trmm",
]  # fmt: skip


def trmm(alpha, A, B):
    return alpha * (B + jnp.tril(A, -1).T @ B)


def _lower(new, C):
    N = C.shape[0]
    return jnp.where(jnp.arange(N)[:, None] >= jnp.arange(N)[None, :], new, C)


def syrk(alpha, beta, C, A):
    return _lower(beta * C + alpha * A @ A.T, C)


def syr2k(alpha, beta, C, A, B):
    return _lower(beta * C + alpha * (A @ B.T + B @ A.T), C)


def symm(alpha, beta, C, A, B):
    symmetric = jnp.tril(A) + jnp.tril(A, -1).T
    return beta * C + alpha * symmetric @ B


def spmv(A_row, A_col, A_val, x):
    n = A_row.size - 1
    rows = jnp.searchsorted(A_row, jnp.arange(A_val.shape[0]), side="right") - 1
    return jax.ops.segment_sum(A_val * x[A_col], rows, num_segments=n, indices_are_sorted=True)


def covariance(M, float_n, data):
    data = data - jnp.mean(data, axis=0)
    return data.T @ data / (float_n - 1.0)


def correlation(M, float_n, data):
    stddev = jnp.std(data, axis=0)
    stddev = jnp.where(stddev <= 0.1, 1.0, stddev)
    data = (data - jnp.mean(data, axis=0)) / (jnp.sqrt(float_n) * stddev)
    return jnp.where(jnp.eye(M, dtype=bool), 1.0, data.T @ data)
