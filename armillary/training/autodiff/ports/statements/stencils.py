"""Stencils and line solvers, statement by statement."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: E741, RUF059
# ruff: noqa: E741
from __future__ import annotations

import jax.numpy as jnp
from jax.lax import fori_loop

BET_M = 0.5
BET_P = 0.5


def seidel_2d(TSTEPS, N, A):
    def point(j, state):
        A, i = state
        A = A.at[i, j].set((A[i, j] + A[i, j - 1]) / 9.0)
        return A, i

    def row(i, A):
        A = A.at[i, 1:-1].add(A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:] + A[i, 2:] + A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:])
        return fori_loop(1, N - 1, point, (A, i))[0]

    return fori_loop(0, TSTEPS - 1, lambda t, A: fori_loop(1, N - 1, row, A), A)


def jacobi_1d(TSTEPS, A, B):
    def step(t, state):
        A, B = state
        B = B.at[1:-1].set(0.33333 * (A[:-2] + A[1:-1] + A[2:]))
        A = A.at[1:-1].set(0.33333 * (B[:-2] + B[1:-1] + B[2:]))
        return A, B

    return fori_loop(1, TSTEPS, step, (A, B))[0]


def jacobi_2d(TSTEPS, A, B):
    def step(t, state):
        A, B = state
        B = B.at[1:-1, 1:-1].set(0.2 * (A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1]))
        A = A.at[1:-1, 1:-1].set(0.2 * (B[1:-1, 1:-1] + B[1:-1, :-2] + B[1:-1, 2:] + B[2:, 1:-1] + B[:-2, 1:-1]))
        return A, B

    return fori_loop(1, TSTEPS, step, (A, B))[0]


def second_differences(X):
    inner = X[1:-1, 1:-1, 1:-1]
    along_x = X[2:, 1:-1, 1:-1] - 2.0 * inner + X[:-2, 1:-1, 1:-1]
    along_y = X[1:-1, 2:, 1:-1] - 2.0 * inner + X[1:-1, :-2, 1:-1]
    along_z = X[1:-1, 1:-1, 2:] - 2.0 * inner + X[1:-1, 1:-1, :-2]
    return 0.125 * (along_x + along_y + along_z)


def heat_3d(TSTEPS, A, B):
    def step(t, state):
        A, B = state
        B = B.at[1:-1, 1:-1, 1:-1].set(A[1:-1, 1:-1, 1:-1] + second_differences(A))
        A = A.at[1:-1, 1:-1, 1:-1].set(B[1:-1, 1:-1, 1:-1] + second_differences(B))
        return A, B

    return fori_loop(1, TSTEPS, step, (A, B))[0]


def fdtd_2d(TMAX, ex, ey, hz, _fict_):
    def step(t, state):
        ex, ey, hz = state
        ey = ey.at[0, :].set(_fict_[t])
        ey = ey.at[1:, :].add(-0.5 * (hz[1:, :] - hz[:-1, :]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return ex, ey, hz

    return fori_loop(0, TMAX, step, (ex, ey, hz))[0]


def adi(TSTEPS, N, u):
    v = jnp.zeros_like(u)
    p = jnp.zeros_like(u)
    q = jnp.zeros_like(u)
    step_x = 2.0 * N * N / TSTEPS
    step_y = 1.0 * N * N / TSTEPS
    a = -step_x / 2.0
    b = 1.0 + step_x
    d = -step_y / 2.0
    e = 1.0 + step_y

    def columns(j, state):
        p, q, u = state
        p = p.at[1:-1, j].set(-a / (a * p[1:-1, j - 1] + b))
        right = -d * u[j, :-2] + (1.0 + 2.0 * d) * u[j, 1:-1] - d * u[j, 2:] - a * q[1:-1, j - 1]
        q = q.at[1:-1, j].set(right / (a * p[1:-1, j - 1] + b))
        return p, q, u

    def rows(j, state):
        p, q, v = state
        p = p.at[1:-1, j].set(-d / (d * p[1:-1, j - 1] + e))
        right = -a * v[:-2, j] + (1.0 + 2.0 * a) * v[1:-1, j] - a * v[2:, j] - d * q[1:-1, j - 1]
        q = q.at[1:-1, j].set(right / (d * p[1:-1, j - 1] + e))
        return p, q, v

    def back_v(k, state):
        v, p, q = state
        j = N - 2 - k
        v = v.at[j, 1:-1].set(p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j])
        return v, p, q

    def back_u(k, state):
        u, p, q = state
        j = N - 2 - k
        u = u.at[1:-1, j].set(p[1:-1, j] * u[1:-1, j + 1] + q[1:-1, j])
        return u, p, q

    def step(t, state):
        u, v, p, q = state
        v = v.at[0, 1:-1].set(1.0)
        p = p.at[1:-1, 0].set(0.0)
        q = q.at[1:-1, 0].set(v[0, 1:-1])
        p, q, u = fori_loop(1, N - 1, columns, (p, q, u))
        v = v.at[N - 1, 1:-1].set(1.0)
        v, p, q = fori_loop(0, N - 2, back_v, (v, p, q))
        u = u.at[1:-1, 0].set(1.0)
        p = p.at[1:-1, 0].set(0.0)
        q = q.at[1:-1, 0].set(u[1:-1, 0])
        p, q, v = fori_loop(1, N - 1, rows, (p, q, v))
        u = u.at[1:-1, N - 1].set(1.0)
        u, p, q = fori_loop(0, N - 2, back_u, (u, p, q))
        return u, v, p, q

    return fori_loop(1, TSTEPS + 1, step, (u, v, p, q))[0]


def deriche(alpha, imgIn):
    decay = jnp.exp(-alpha)
    k = (1.0 - decay) * (1.0 - decay) / (1.0 + 2.0 * alpha * decay - decay * decay)
    a1 = k
    a2 = k * decay * (alpha - 1.0)
    a3 = k * decay * (alpha + 1.0)
    a4 = -k * decay * decay
    b1 = 2.0 * decay
    b2 = -decay * decay
    W, H = imgIn.shape
    y1 = jnp.zeros_like(imgIn)
    y2 = jnp.zeros_like(imgIn)
    y1 = y1.at[:, 0].set(a1 * imgIn[:, 0])
    y1 = y1.at[:, 1].set(a1 * imgIn[:, 1] + a2 * imgIn[:, 0] + b1 * y1[:, 0])

    def right(j, y1):
        return y1.at[:, j].set(a1 * imgIn[:, j] + a2 * imgIn[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2])

    y1 = fori_loop(2, H, right, y1)
    y2 = y2.at[:, H - 2].set(a3 * imgIn[:, H - 1])

    def left(k, y2):
        j = H - 3 - k
        return y2.at[:, j].set(a3 * imgIn[:, j + 1] + a4 * imgIn[:, j + 2] + b1 * y2[:, j + 1] + b2 * y2[:, j + 2])

    y2 = fori_loop(0, H - 2, left, y2)
    imgOut = y1 + y2
    y1 = y1.at[0, :].set(a1 * imgOut[0, :])
    y1 = y1.at[1, :].set(a1 * imgOut[1, :] + a2 * imgOut[0, :] + b1 * y1[0, :])

    def down(i, y1):
        return y1.at[i, :].set(a1 * imgOut[i, :] + a2 * imgOut[i - 1, :] + b1 * y1[i - 1, :] + b2 * y1[i - 2, :])

    y1 = fori_loop(2, W, down, y1)
    y2 = y2.at[W - 1, :].set(0.0)
    y2 = y2.at[W - 2, :].set(a3 * imgOut[W - 1, :])

    def up(k, y2):
        i = W - 3 - k
        return y2.at[i, :].set(a3 * imgOut[i + 1, :] + a4 * imgOut[i + 2, :] + b1 * y2[i + 1, :] + b2 * y2[i + 2, :])

    y2 = fori_loop(0, W - 2, up, y2)
    return y1 + y2


def hdiff(in_field, out_field, coeff):
    lap = 4.0 * in_field[1:-1, 1:-1, :] - (in_field[2:, 1:-1, :] + in_field[:-2, 1:-1, :] + in_field[1:-1, 2:, :] + in_field[1:-1, :-2, :])
    along_x = lap[1:, 1:-1, :] - lap[:-1, 1:-1, :]
    flux_x = jnp.where(along_x * (in_field[2:-1, 2:-2, :] - in_field[1:-2, 2:-2, :]) > 0, 0.0, along_x)
    along_y = lap[1:-1, 1:, :] - lap[1:-1, :-1, :]
    flux_y = jnp.where(along_y * (in_field[2:-2, 2:-1, :] - in_field[2:-2, 1:-2, :]) > 0, 0.0, along_y)
    return in_field[2:-2, 2:-2, :] - coeff * (flux_x[1:, :, :] - flux_x[:-1, :, :] + flux_y[:, 1:, :] - flux_y[:, :-1, :]) + 0.0 * out_field


def vadv(utens_stage, u_stage, wcon, u_pos, utens, dtr_stage):
    I, J, K = utens_stage.shape
    ccol = jnp.zeros_like(utens_stage)
    dcol = jnp.zeros_like(utens_stage)
    gcv = 0.25 * (wcon[1:, :, 1] + wcon[:-1, :, 1])
    ccol = ccol.at[:, :, 0].set(gcv * BET_P)
    first = dtr_stage - ccol[:, :, 0]
    correction = -gcv * BET_M * (u_stage[:, :, 1] - u_stage[:, :, 0])
    dcol = dcol.at[:, :, 0].set((dtr_stage * u_pos[:, :, 0] + utens[:, :, 0] + utens_stage[:, :, 0] + correction) / first)
    ccol = ccol.at[:, :, 0].set(ccol[:, :, 0] / first)

    def forward(k, state):
        ccol, dcol = state
        below = -0.25 * (wcon[1:, :, k] + wcon[:-1, :, k])
        above = 0.25 * (wcon[1:, :, k + 1] + wcon[:-1, :, k + 1])
        acol = below * BET_P
        bcol = dtr_stage - acol - above * BET_P
        change = -below * BET_M * (u_stage[:, :, k - 1] - u_stage[:, :, k]) - above * BET_M * (u_stage[:, :, k + 1] - u_stage[:, :, k])
        right = dtr_stage * u_pos[:, :, k] + utens[:, :, k] + utens_stage[:, :, k] + change
        divided = 1.0 / (bcol - ccol[:, :, k - 1] * acol)
        ccol = ccol.at[:, :, k].set(above * BET_P * divided)
        dcol = dcol.at[:, :, k].set((right - dcol[:, :, k - 1] * acol) * divided)
        return ccol, dcol

    ccol, dcol = fori_loop(1, K - 1, forward, (ccol, dcol))
    last = -0.25 * (wcon[1:, :, K - 1] + wcon[:-1, :, K - 1])
    lowest = last * BET_P
    ending = -last * BET_M * (u_stage[:, :, K - 2] - u_stage[:, :, K - 1])
    rest = dtr_stage * u_pos[:, :, K - 1] + utens[:, :, K - 1] + utens_stage[:, :, K - 1] + ending
    dcol = dcol.at[:, :, K - 1].set((rest - dcol[:, :, K - 2] * lowest) / (dtr_stage - lowest - ccol[:, :, K - 2] * lowest))
    data = dcol[:, :, K - 1]
    utens_stage = utens_stage.at[:, :, K - 1].set(dtr_stage * (data - u_pos[:, :, K - 1]))

    def back(n, state):
        data, utens_stage = state
        k = K - 2 - n
        data = dcol[:, :, k] - ccol[:, :, k] * data
        utens_stage = utens_stage.at[:, :, k].set(dtr_stage * (data - u_pos[:, :, k]))
        return data, utens_stage

    return fori_loop(0, K - 1, back, (data, utens_stage))[1]


def divergence(b, rho, dt, u, v, dx, dy):
    ux = (u[1:-1, 2:] - u[1:-1, :-2]) / (2.0 * dx)
    uy = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2.0 * dy)
    vx = (v[1:-1, 2:] - v[1:-1, :-2]) / (2.0 * dx)
    vy = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2.0 * dy)
    return b.at[1:-1, 1:-1].set(rho * ((ux + vy) / dt - ux * ux - 2.0 * uy * vx - vy * vy))


def relax_pressure(nit, p, dx, dy, b):
    whole = 2.0 * (dx**2 + dy**2)

    def sweep(q, p):
        pn = p
        p = p.at[1:-1, 1:-1].set(((pn[1:-1, 2:] + pn[1:-1, :-2]) * dy**2 + (pn[2:, 1:-1] + pn[:-2, 1:-1]) * dx**2) / whole)
        p = p.at[1:-1, 1:-1].add(-(dx**2 * dy**2) / whole * b[1:-1, 1:-1])
        p = p.at[:, -1].set(p[:, -2])
        p = p.at[0, :].set(p[1, :])
        p = p.at[:, 0].set(p[:, 1])
        return p.at[-1, :].set(0.0)

    return fori_loop(0, nit, sweep, p)


def cavity_flow(nx, ny, nt, nit, u, v, dt, dx, dy, p, rho, nu):
    b = jnp.zeros((ny, nx), dtype=p.dtype)

    def step(n, state):
        u, v, p, b = state
        un = u
        vn = v
        b = divergence(b, rho, dt, u, v, dx, dy)
        p = relax_pressure(nit, p, dx, dy, b)
        uc = un[1:-1, 1:-1]
        vc = vn[1:-1, 1:-1]
        u = u.at[1:-1, 1:-1].set(
            uc
            - uc * dt / dx * (uc - un[1:-1, :-2])
            - vc * dt / dy * (uc - un[:-2, 1:-1])
            - dt / (2.0 * rho * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
            + nu * dt / dx**2 * (un[1:-1, 2:] - 2.0 * uc + un[1:-1, :-2])
            + nu * dt / dy**2 * (un[2:, 1:-1] - 2.0 * uc + un[:-2, 1:-1])
        )
        v = v.at[1:-1, 1:-1].set(
            vc
            - uc * dt / dx * (vc - vn[1:-1, :-2])
            - vc * dt / dy * (vc - vn[:-2, 1:-1])
            - dt / (2.0 * rho * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])
            + nu * dt / dx**2 * (vn[1:-1, 2:] - 2.0 * vc + vn[1:-1, :-2])
            + nu * dt / dy**2 * (vn[2:, 1:-1] - 2.0 * vc + vn[:-2, 1:-1])
        )
        u = u.at[0, :].set(0.0)
        u = u.at[:, 0].set(0.0)
        u = u.at[:, -1].set(0.0)
        u = u.at[-1, :].set(1.0)
        v = v.at[0, :].set(0.0)
        v = v.at[-1, :].set(0.0)
        v = v.at[:, 0].set(0.0)
        v = v.at[:, -1].set(0.0)
        return u, v, p, b

    return fori_loop(0, nt, step, (u, v, p, b))[0]
