"""Factorisations and recurrences as scans, or as calls of LAPACK where one does the same."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import jax.numpy as jnp
from jax.lax import scan
from jax.scipy.linalg import solve_triangular

from .stepping import steps


def durbin(r):
    N = r.shape[0]
    place = jnp.arange(N)
    # Row k of the mirrored r is r[k-1], r[k-2], …, r[0], then zeros.
    reversed_r = jnp.concatenate((r[::-1], jnp.zeros(N, r.dtype)))

    def step(state, k):
        alpha, beta, y = state
        beta = beta * (1.0 - alpha * alpha)
        mirrored = jnp.roll(y[::-1], k - N)
        dot = jnp.dot(jnp.where(place < k, jnp.roll(reversed_r[:N], k - N), 0.0), y)
        alpha = -(r[k] + dot) / beta
        y = y + jnp.where(place < k, alpha * mirrored, jnp.where(place == k, alpha, 0.0))
        return (alpha, beta, y), None

    y = jnp.where(place == 0, -r[0], 0.0)
    return scan(step, (-r[0], jnp.ones((), r.dtype), y), jnp.arange(1, N))[0][2]


def trisolv(L, x, b):
    return solve_triangular(L, b, lower=True)


def lu(A):
    N = A.shape[0]
    place = jnp.arange(N)

    def step(A, k):
        factors = jnp.where(place > k, A[:, k] / A[k, k], 0.0)
        A = A - jnp.where((place > k)[None, :], jnp.outer(factors, A[k, :]), 0.0)
        return A.at[:, k].set(jnp.where(place > k, factors, A[:, k])), None

    return scan(step, A, jnp.arange(N - 1))[0]


def cholesky(A):
    # The kernel reads the lower triangle and leaves the rest as it is.
    lower = jnp.tril(A)
    return jnp.linalg.cholesky(lower + jnp.tril(A, -1).T, symmetrize_input=False) + jnp.triu(A, 1)


def gramschmidt(A, checkpoint=False):
    N = A.shape[1]

    def step(state):
        A, k = state
        column = A[:, k] / jnp.sqrt(jnp.dot(A[:, k], A[:, k]))
        row = jnp.where(jnp.arange(N) > k, column @ A, 0.0)
        return (A - jnp.outer(column, row), k + 1), None

    return steps(step, (A, 0), N, checkpoint)[0][0]
