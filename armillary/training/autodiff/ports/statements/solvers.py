"""Factorisations and recurrences, statement by statement."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: RUF059
from __future__ import annotations

import jax.numpy as jnp
from jax.lax import fori_loop


def durbin(r):
    N = r.shape[0]
    y = jnp.zeros_like(r)
    alpha = -r[0]
    beta = jnp.ones((), r.dtype)
    y = y.at[0].set(-r[0])
    place = jnp.arange(N)

    def step(k, state):
        alpha, beta, y = state
        beta = beta * (1.0 - alpha * alpha)
        mirrored = (k - 1 - place) % N
        dot = jnp.sum(jnp.where(place < k, r[mirrored] * y, 0.0))
        alpha = -(r[k] + dot) / beta
        y = y + jnp.where(place < k, alpha * y[mirrored], 0.0)
        y = y.at[k].set(alpha)
        return alpha, beta, y

    return fori_loop(1, N, step, (alpha, beta, y))[2]


def trisolv(L, x, b):
    N = x.shape[0]

    def row(i, x):
        dot = jnp.sum(jnp.where(jnp.arange(N) < i, L[i, :] * x, 0.0))
        return x.at[i].set((b[i] - dot) / L[i, i])

    return fori_loop(0, N, row, x)


def lu(A):
    N = A.shape[0]
    place = jnp.arange(N)

    def below(j, state):
        A, i = state
        new = A[i, j] - jnp.sum(jnp.where(place < j, A[i, :] * A[:, j], 0.0))
        new = new / A[j, j]
        return A.at[i, j].set(jnp.where(j < i, new, A[i, j])), i

    def above(j, state):
        A, i = state
        new = A[i, j] - jnp.sum(jnp.where(place < i, A[i, :] * A[:, j], 0.0))
        return A.at[i, j].set(jnp.where(j >= i, new, A[i, j])), i

    def row(i, A):
        A, _ = fori_loop(0, N, below, (A, i))
        A, _ = fori_loop(0, N, above, (A, i))
        return A

    return fori_loop(0, N, row, A)


def cholesky(A):
    N = A.shape[0]
    place = jnp.arange(N)
    A = A.at[0, 0].set(jnp.sqrt(A[0, 0]))

    def element(j, state):
        A, i = state
        new = A[i, j] - jnp.sum(jnp.where(place < j, A[i, :] * A[j, :], 0.0))
        new = new / A[j, j]
        return A.at[i, j].set(jnp.where(j < i, new, A[i, j])), i

    def row(i, A):
        A, _ = fori_loop(0, N, element, (A, i))
        A = A.at[i, i].add(-jnp.sum(jnp.where(place < i, A[i, :] * A[i, :], 0.0)))
        return A.at[i, i].set(jnp.sqrt(A[i, i]))

    return fori_loop(1, N, row, A)


def gramschmidt(A):
    M, N = A.shape
    Q = jnp.zeros_like(A)
    R = jnp.zeros((N, N), dtype=A.dtype)

    def others(j, state):
        A, Q, R, k = state
        new = jnp.dot(Q[:, k], A[:, j])
        later = j > k
        R = R.at[k, j].set(jnp.where(later, new, R[k, j]))
        A = A.at[:, j].add(jnp.where(later, -Q[:, k] * new, 0.0))
        return A, Q, R, k

    def column(k, state):
        A, Q, R = state
        R = R.at[k, k].set(jnp.sqrt(jnp.dot(A[:, k], A[:, k])))
        Q = Q.at[:, k].set(A[:, k] / R[k, k])
        A, Q, R, _ = fori_loop(0, N, others, (A, Q, R, k))
        return A, Q, R

    return fori_loop(0, N, column, (A, Q, R))[0]
