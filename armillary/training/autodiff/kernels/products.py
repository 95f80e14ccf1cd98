"""Products of matrices and vectors, and statistics that are made of them."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import numpy as np


def gemm(alpha, beta, C, A, B):
    """C = alpha A B + beta C."""
    C[:] = alpha * A @ B + beta * C


def k2mm(alpha, beta, A, B, C, D):
    """D = alpha A B C + beta D."""
    D[:] = alpha * A @ B @ C + beta * D


def k3mm(A, B, C, D):
    """(A B)(C D)."""
    return A @ B @ (C @ D)


def gemver(alpha, beta, A, u1, v1, u2, v2, w, x, y, z):
    """A matrix with two rank-one changes, times vectors."""
    A += np.outer(u1, v1) + np.outer(u2, v2)
    x += beta * y @ A + z
    w += alpha * A @ x


def gesummv(alpha, beta, A, B, x):
    """The sum of two products with one vector."""
    return alpha * A @ x + beta * B @ x


def atax(A, x):
    """Aᵀ(A x)."""
    return (A @ x) @ A


def bicg(A, p, r):
    """The two products of a step of BiCG."""
    return r @ A, A @ p


def mvt(x1, x2, y_1, y_2, A):
    """Two vectors, each with a product added: by the matrix, and by its transpose."""
    x1 += A @ y_1
    x2 += y_2 @ A


def doitgen(NR, NQ, NP, A, C4):
    """Every row along the third axis times one matrix."""
    A[:] = np.reshape(np.reshape(A, (NR, NQ, 1, NP)) @ C4, (NR, NQ, NP))


def trmm(alpha, A, B):
    """A unit lower triangular matrix, transposed, times a matrix, in place."""
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            B[i, j] += np.dot(A[i + 1 :, i], B[i + 1 :, j])
    B *= alpha


def syrk(alpha, beta, C, A):
    """The lower triangle of alpha A Aᵀ + beta C, column by column."""
    for i in range(A.shape[0]):
        C[i, : i + 1] *= beta
        for k in range(A.shape[1]):
            C[i, : i + 1] += alpha * A[i, k] * A[: i + 1, k]


def syr2k(alpha, beta, C, A, B):
    """The lower triangle of alpha (A Bᵀ + B Aᵀ) + beta C, column by column."""
    for i in range(A.shape[0]):
        C[i, : i + 1] *= beta
        for k in range(A.shape[1]):
            C[i, : i + 1] += A[: i + 1, k] * alpha * B[i, k] + B[: i + 1, k] * alpha * A[i, k]


def symm(alpha, beta, C, A, B):
    """alpha A B + beta C, where only the lower triangle of the symmetric A is stored."""
    above = np.zeros((C.shape[1],), dtype=C.dtype)
    C *= beta
    for i in range(C.shape[0]):
        for j in range(C.shape[1]):
            C[:i, j] += alpha * B[i, j] * A[i, :i]
            above[j] = B[:i, j] @ A[i, :i]
        C[i, :] += alpha * B[i, :] * A[i, i] + alpha * above


def spmv(A_row, A_col, A_val, x):
    """A sparse matrix in compressed rows times a vector."""
    y = np.zeros(A_row.size - 1, dtype=A_val.dtype)
    for i in range(A_row.size - 1):
        cols = A_col[A_row[i] : A_row[i + 1]]
        vals = A_val[A_row[i] : A_row[i + 1]]
        y[i] = vals @ x[cols]
    return y


def covariance(M, float_n, data):
    """Covariances of columns."""
    mean = np.mean(data, axis=0)
    data -= mean
    cov = np.zeros((M, M), dtype=data.dtype)
    for i in range(M):
        cov[i, i:M] = data[:, i] @ data[:, i:M] / (float_n - 1.0)
        cov[i:M, i] = cov[i, i:M]
    return cov


def correlation(M, float_n, data):
    """Correlations of columns; those that hardly vary count as if they varied by one."""
    mean = np.mean(data, axis=0)
    stddev = np.std(data, axis=0)
    stddev[stddev <= 0.1] = 1.0
    data -= mean
    data /= np.sqrt(float_n) * stddev
    corr = np.eye(M, dtype=data.dtype)
    for i in range(M - 1):
        corr[i, i + 1 : M] = data[:, i] @ data[:, i + 1 : M]
        corr[i + 1 : M, i] = corr[i, i + 1 : M]
    return corr
