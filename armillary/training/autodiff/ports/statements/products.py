"""Products, statement by statement."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import jax.numpy as jnp
from jax.lax import fori_loop


def gemm(alpha, beta, C, A, B):
    return alpha * A @ B + beta * C


def k2mm(alpha, beta, A, B, C, D):
    return alpha * A @ B @ C + beta * D


def k3mm(A, B, C, D):
    return A @ B @ (C @ D)


def gemver(alpha, beta, A, u1, v1, u2, v2, w, x, y, z):
    A = A + jnp.outer(u1, v1) + jnp.outer(u2, v2)
    x = x + beta * y @ A + z
    return w + alpha * A @ x


def gesummv(alpha, beta, A, B, x):
    return alpha * A @ x + beta * B @ x


def atax(A, x):
    return (A @ x) @ A


def bicg(A, p, r):
    return r @ A


def mvt(x1, x2, y_1, y_2, A):
    return x1 + A @ y_1


def doitgen(NR, NQ, NP, A, C4):
    return jnp.reshape(jnp.reshape(A, (NR, NQ, 1, NP)) @ C4, (NR, NQ, NP))


def trmm(alpha, A, B):
    M, N = B.shape
    place = jnp.arange(M)

    def element(j, state):
        B, i = state
        return B.at[i, j].add(jnp.sum(jnp.where(place > i, A[:, i] * B[:, j], 0.0))), i

    B = fori_loop(0, M, lambda i, B: fori_loop(0, N, element, (B, i))[0], B)
    return B * alpha


def syrk(alpha, beta, C, A):
    N, M = A.shape
    place = jnp.arange(N)

    def term(k, state):
        C, i = state
        return C.at[i, :].add(jnp.where(place <= i, alpha * A[i, k] * A[:, k], 0.0)), i

    def row(i, C):
        C = C.at[i, :].set(jnp.where(place <= i, C[i, :] * beta, C[i, :]))
        return fori_loop(0, M, term, (C, i))[0]

    return fori_loop(0, N, row, C)


def syr2k(alpha, beta, C, A, B):
    N, M = A.shape
    place = jnp.arange(N)

    def term(k, state):
        C, i = state
        return C.at[i, :].add(jnp.where(place <= i, A[:, k] * alpha * B[i, k] + B[:, k] * alpha * A[i, k], 0.0)), i

    def row(i, C):
        C = C.at[i, :].set(jnp.where(place <= i, C[i, :] * beta, C[i, :]))
        return fori_loop(0, M, term, (C, i))[0]

    return fori_loop(0, N, row, C)


def symm(alpha, beta, C, A, B):
    M, N = C.shape
    above = jnp.zeros((N,), dtype=C.dtype)
    C = C * beta
    place = jnp.arange(M)

    def element(j, state):
        C, above, i = state
        C = C.at[:, j].add(jnp.where(place < i, alpha * B[i, j] * A[i, :], 0.0))
        above = above.at[j].set(jnp.sum(jnp.where(place < i, B[:, j] * A[i, :], 0.0)))
        return C, above, i

    def row(i, state):
        C, above = state
        C, above, _ = fori_loop(0, N, element, (C, above, i))
        C = C.at[i, :].add(alpha * B[i, :] * A[i, i] + alpha * above)
        return C, above

    return fori_loop(0, M, row, (C, above))[0]


def spmv(A_row, A_col, A_val, x):
    n = A_row.size - 1
    y = jnp.zeros(n, dtype=A_val.dtype)
    place = jnp.arange(A_val.shape[0])

    def row(i, y):
        mine = (place >= A_row[i]) & (place < A_row[i + 1])
        return y.at[i].set(jnp.sum(jnp.where(mine, A_val * x[A_col], 0.0)))

    return fori_loop(0, n, row, y)


def covariance(M, float_n, data):
    mean = jnp.mean(data, axis=0)
    data = data - mean
    cov = jnp.zeros((M, M), dtype=data.dtype)
    place = jnp.arange(M)

    def row(i, cov):
        new = jnp.where(place >= i, data[:, i] @ data / (float_n - 1.0), 0.0)
        cov = cov.at[i, :].set(jnp.where(place >= i, new, cov[i, :]))
        return cov.at[:, i].set(jnp.where(place >= i, cov[i, :], cov[:, i]))

    return fori_loop(0, M, row, cov)


def correlation(M, float_n, data):
    mean = jnp.mean(data, axis=0)
    stddev = jnp.std(data, axis=0)
    stddev = jnp.where(stddev <= 0.1, 1.0, stddev)
    data = data - mean
    data = data / (jnp.sqrt(float_n) * stddev)
    corr = jnp.eye(M, dtype=data.dtype)
    place = jnp.arange(M)

    def row(i, corr):
        new = data[:, i] @ data
        corr = corr.at[i, :].set(jnp.where(place > i, new, corr[i, :]))
        return corr.at[:, i].set(jnp.where(place > i, corr[i, :], corr[:, i]))

    return fori_loop(0, M - 1, row, corr)
