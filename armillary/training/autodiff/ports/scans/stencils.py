"""Stencils and line solvers as scans."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import jax.numpy as jnp
from jax.lax import scan

from ..statements.stencils import BET_M, BET_P, divergence, hdiff, second_differences
from .stepping import steps

__all__ = ["adi", "cavity_flow", "deriche", "fdtd_2d", "hdiff", "heat_3d", "jacobi_1d", "jacobi_2d", "seidel_2d", "vadv"]


def seidel_2d(TSTEPS, N, A, checkpoint=False):
    # The recurrence along a row, a[j] = (c[j] + a[j-1])/9, is a product with a triangular matrix of powers of 1/9.
    inner = N - 2
    apart = jnp.arange(inner)[:, None] - jnp.arange(inner)[None, :]
    powers = jnp.where(apart >= 0, 9.0 ** -(apart + 1.0), 0.0)
    first = 9.0 ** -(jnp.arange(inner) + 1.0)

    def row(above, rows):
        here, below = rows
        c = above[:-2] + above[1:-1] + above[2:] + here[1:-1] + here[2:] + below[:-2] + below[1:-1] + below[2:]
        new = here.at[1:-1].set(powers @ c + first * here[0])
        return new, new

    def sweep(A):
        _, new = scan(row, A[0], (A[1:-1], A[2:]))
        return A.at[1:-1].set(new), None

    return steps(sweep, A, TSTEPS - 1, checkpoint)[0]


def jacobi_1d(TSTEPS, A, B, checkpoint=False):
    def mean(X, Y):
        return jnp.concatenate((Y[:1], 0.33333 * (X[:-2] + X[1:-1] + X[2:]), Y[-1:]))

    def step(state):
        A, B = state
        B = mean(A, B)
        return (mean(B, A), B), None

    return steps(step, (A, B), TSTEPS - 1, checkpoint)[0][0]


def jacobi_2d(TSTEPS, A, B, checkpoint=False):
    def mean(X, Y):
        return Y.at[1:-1, 1:-1].set(0.2 * (X[1:-1, 1:-1] + X[1:-1, :-2] + X[1:-1, 2:] + X[2:, 1:-1] + X[:-2, 1:-1]))

    def step(state):
        A, B = state
        B = mean(A, B)
        return (mean(B, A), B), None

    return steps(step, (A, B), TSTEPS - 1, checkpoint)[0][0]


def heat_3d(TSTEPS, A, B, checkpoint=False):
    def step(state):
        A, B = state
        B = B.at[1:-1, 1:-1, 1:-1].set(A[1:-1, 1:-1, 1:-1] + second_differences(A))
        A = A.at[1:-1, 1:-1, 1:-1].set(B[1:-1, 1:-1, 1:-1] + second_differences(B))
        return (A, B), None

    return steps(step, (A, B), TSTEPS - 1, checkpoint)[0][0]


def fdtd_2d(TMAX, ex, ey, hz, _fict_):
    def step(state, fict):
        ex, ey, hz = state
        ey = jnp.concatenate((jnp.full((1, ey.shape[1]), fict), ey[1:] - 0.5 * (hz[1:] - hz[:-1])))
        ex = jnp.concatenate((ex[:, :1], ex[:, 1:] - 0.5 * (hz[:, 1:] - hz[:, :-1])), axis=1)
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return (ex, ey, hz), None

    return scan(step, (ex, ey, hz), _fict_)[0][0]


def adi(TSTEPS, N, u, checkpoint=False):
    step_x = 2.0 * N * N / TSTEPS
    step_y = 1.0 * N * N / TSTEPS
    a, b, d, e = -step_x / 2.0, 1.0 + step_x, -step_y / 2.0, 1.0 + step_y

    def solve(low, middle, right):
        """Tridiagonal systems with ends 1, one per entry of a row of `right`; the systems run along its first axis."""

        def down(state, row):
            p, q = state
            below = low * p + middle
            new = (jnp.full_like(p, -low) / below, (row - low * q) / below)
            return new, new

        n = right.shape[1]
        _, (p, q) = scan(down, (jnp.zeros(n), jnp.ones(n)), right)

        def up(x, pq):
            x = pq[0] * x + pq[1]
            return x, x

        return scan(up, jnp.ones(n), (p, q), reverse=True)[1]

    def step(u):
        right = -d * u[1:-1, :-2] + (1.0 + 2.0 * d) * u[1:-1, 1:-1] - d * u[1:-1, 2:]
        inner = solve(a, b, right)
        v = jnp.concatenate((jnp.ones((1, N - 2)), inner, jnp.ones((1, N - 2))))
        v = jnp.pad(v, ((0, 0), (1, 1)))
        right = -a * v[:-2, 1:-1] + (1.0 + 2.0 * a) * v[1:-1, 1:-1] - a * v[2:, 1:-1]
        inner = solve(d, e, right.T).T
        return u.at[1:-1].set(jnp.concatenate((jnp.ones((N - 2, 1)), inner, jnp.ones((N - 2, 1))), axis=1)), None

    return steps(step, u, TSTEPS, checkpoint)[0]


def deriche(alpha, imgIn):
    decay = jnp.exp(-alpha)
    k = (1.0 - decay) * (1.0 - decay) / (1.0 + 2.0 * alpha * decay - decay * decay)
    a1, a2, a3, a4 = k, k * decay * (alpha - 1.0), k * decay * (alpha + 1.0), -k * decay * decay
    b1, b2 = 2.0 * decay, -decay * decay

    def both(rows):
        """The filter along the first axis, forwards and backwards."""

        def forward(state, row):
            before, y1, y2 = state
            y = a1 * row + a2 * before + b1 * y1 + b2 * y2
            return (row, y, y1), y

        def backward(state, row):
            next1, next2, y1, y2 = state
            y = a3 * next1 + a4 * next2 + b1 * y1 + b2 * y2
            return (row, next1, y, y1), y

        zero = jnp.zeros_like(rows[0])
        there = scan(forward, (zero, zero, zero), rows)[1]
        back = scan(backward, (zero, zero, zero, zero), rows, reverse=True)[1]
        return there + back

    return both(both(imgIn.T).T)


def vadv(utens_stage, u_stage, wcon, u_pos, utens, dtr_stage):
    w = 0.25 * (wcon[1:] + wcon[:-1])
    below = jnp.moveaxis(jnp.concatenate((jnp.zeros_like(w[:, :, :1]), -w[:, :, 1:]), axis=2), 2, 0)
    above = jnp.moveaxis(jnp.concatenate((w[:, :, 1:], jnp.zeros_like(w[:, :, :1])), axis=2), 2, 0)
    u = jnp.moveaxis(u_stage, 2, 0)
    lower = jnp.concatenate((u[:1], u[:-1])) - u
    upper = jnp.concatenate((u[1:], u[-1:])) - u
    right = jnp.moveaxis(dtr_stage * u_pos + utens + utens_stage, 2, 0) - below * BET_M * lower - above * BET_M * upper
    acol, ccol = below * BET_P, above * BET_P

    def forward(state, row):
        c, d = state
        a, b, r = row
        divided = 1.0 / (dtr_stage - a - b - c * a)
        new = (b * divided, (r - d * a) * divided)
        return new, new

    zero = jnp.zeros_like(u[0])
    _, (c, d) = scan(forward, (zero, zero), (acol, ccol, right))

    def back(data, row):
        data = row[1] - row[0] * data
        return data, data

    _, data = scan(back, zero, (c, d), reverse=True)
    return dtr_stage * (jnp.moveaxis(data, 0, 2) - u_pos)


def cavity_flow(nx, ny, nt, nit, u, v, dt, dx, dy, p, rho, nu, checkpoint=False):
    whole = 2.0 * (dx**2 + dy**2)
    b = jnp.zeros((ny, nx), dtype=p.dtype)

    def relax(p, source):
        new = ((p[1:-1, 2:] + p[1:-1, :-2]) * dy**2 + (p[2:, 1:-1] + p[:-2, 1:-1]) * dx**2) / whole - source
        side = jnp.concatenate((new, new[:, -1:]), axis=1)
        inner = jnp.concatenate((side[:, :1], side), axis=1)
        return jnp.concatenate((inner[:1], inner, jnp.zeros_like(inner[:1])))

    def step(state):
        u, v, p = state
        source = dx**2 * dy**2 / whole * divergence(b, rho, dt, u, v, dx, dy)[1:-1, 1:-1]
        p = scan(lambda p, _: (relax(p, source), None), p, None, length=nit)[0]
        uc, vc = u[1:-1, 1:-1], v[1:-1, 1:-1]
        new_u = (
            uc
            - uc * dt / dx * (uc - u[1:-1, :-2])
            - vc * dt / dy * (uc - u[:-2, 1:-1])
            - dt / (2.0 * rho * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
            + nu * dt / dx**2 * (u[1:-1, 2:] - 2.0 * uc + u[1:-1, :-2])
            + nu * dt / dy**2 * (u[2:, 1:-1] - 2.0 * uc + u[:-2, 1:-1])
        )
        new_v = (
            vc
            - uc * dt / dx * (vc - v[1:-1, :-2])
            - vc * dt / dy * (vc - v[:-2, 1:-1])
            - dt / (2.0 * rho * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])
            + nu * dt / dx**2 * (v[1:-1, 2:] - 2.0 * vc + v[1:-1, :-2])
            + nu * dt / dy**2 * (v[2:, 1:-1] - 2.0 * vc + v[:-2, 1:-1])
        )
        u = jnp.pad(new_u, 1).at[-1, :].set(1.0)
        return (u, jnp.pad(new_v, 1), p), None

    return steps(step, (u, v, p), nt, checkpoint)[0][0]
