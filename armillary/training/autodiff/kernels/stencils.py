"""Stencils and line solvers: values on a grid that depend on their neighbours, step after step."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: B007, E741, RUF059
from __future__ import annotations

import numpy as np

BET_M = 0.5
BET_P = 0.5


def seidel_2d(TSTEPS, N, A):
    """Gauss-Seidel smoothing in place: every point becomes the mean of its nine neighbours, half of them new."""
    for t in range(TSTEPS - 1):
        for i in range(1, N - 1):
            A[i, 1:-1] += A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:] + A[i, 2:] + A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:]
            for j in range(1, N - 1):
                A[i, j] = (A[i, j] + A[i, j - 1]) / 9.0


def jacobi_1d(TSTEPS, A, B):
    """Means of three neighbours, from one array into the other and back."""
    for t in range(1, TSTEPS):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])


def jacobi_2d(TSTEPS, A, B):
    """Means of five neighbours, from one array into the other and back."""
    for t in range(1, TSTEPS):
        B[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1])
        A[1:-1, 1:-1] = 0.2 * (B[1:-1, 1:-1] + B[1:-1, :-2] + B[1:-1, 2:] + B[2:, 1:-1] + B[:-2, 1:-1])


def second_differences(X):
    """An eighth of the second differences along each axis."""
    inner = X[1:-1, 1:-1, 1:-1]
    along_x = X[2:, 1:-1, 1:-1] - 2.0 * inner + X[:-2, 1:-1, 1:-1]
    along_y = X[1:-1, 2:, 1:-1] - 2.0 * inner + X[1:-1, :-2, 1:-1]
    along_z = X[1:-1, 1:-1, 2:] - 2.0 * inner + X[1:-1, 1:-1, :-2]
    return 0.125 * (along_x + along_y + along_z)


def heat_3d(TSTEPS, A, B):
    """The heat equation in three dimensions, explicit in time."""
    for t in range(1, TSTEPS):
        B[1:-1, 1:-1, 1:-1] = A[1:-1, 1:-1, 1:-1] + second_differences(A)
        A[1:-1, 1:-1, 1:-1] = B[1:-1, 1:-1, 1:-1] + second_differences(B)


def fdtd_2d(TMAX, ex, ey, hz, _fict_):
    """Maxwell's equations on staggered grids; `_fict_` drives one edge."""
    for t in range(TMAX):
        ey[0, :] = _fict_[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


def adi(TSTEPS, N, u):
    """Alternating directions for the heat equation: tridiagonal systems along columns, then along rows."""
    v = np.zeros_like(u)
    p = np.zeros_like(u)
    q = np.zeros_like(u)
    step_x = 2.0 * N * N / TSTEPS
    step_y = 1.0 * N * N / TSTEPS
    a = -step_x / 2.0
    b = 1.0 + step_x
    d = -step_y / 2.0
    e = 1.0 + step_y
    for t in range(1, TSTEPS + 1):
        v[0, 1:-1] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = v[0, 1:-1]
        for j in range(1, N - 1):
            p[1:-1, j] = -a / (a * p[1:-1, j - 1] + b)
            q[1:-1, j] = (-d * u[j, :-2] + (1.0 + 2.0 * d) * u[j, 1:-1] - d * u[j, 2:] - a * q[1:-1, j - 1]) / (a * p[1:-1, j - 1] + b)
        v[N - 1, 1:-1] = 1.0
        for j in range(N - 2, 0, -1):
            v[j, 1:-1] = p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j]
        u[1:-1, 0] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = u[1:-1, 0]
        for j in range(1, N - 1):
            p[1:-1, j] = -d / (d * p[1:-1, j - 1] + e)
            q[1:-1, j] = (-a * v[:-2, j] + (1.0 + 2.0 * a) * v[1:-1, j] - a * v[2:, j] - d * q[1:-1, j - 1]) / (d * p[1:-1, j - 1] + e)
        u[1:-1, N - 1] = 1.0
        for j in range(N - 2, 0, -1):
            u[1:-1, j] = p[1:-1, j] * u[1:-1, j + 1] + q[1:-1, j]


def deriche(alpha, imgIn):
    """Deriche's smoothing filter: recursive filters to the right and left, then down and up."""
    decay = np.exp(-alpha)
    k = (1.0 - decay) * (1.0 - decay) / (1.0 + 2.0 * alpha * decay - decay * decay)
    a1 = k
    a2 = k * decay * (alpha - 1.0)
    a3 = k * decay * (alpha + 1.0)
    a4 = -k * decay * decay
    b1 = 2.0 * decay
    b2 = -decay * decay
    W, H = imgIn.shape
    y1 = np.zeros_like(imgIn)
    y2 = np.zeros_like(imgIn)
    y1[:, 0] = a1 * imgIn[:, 0]
    y1[:, 1] = a1 * imgIn[:, 1] + a2 * imgIn[:, 0] + b1 * y1[:, 0]
    for j in range(2, H):
        y1[:, j] = a1 * imgIn[:, j] + a2 * imgIn[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2]
    y2[:, H - 2] = a3 * imgIn[:, H - 1]
    for j in range(H - 3, -1, -1):
        y2[:, j] = a3 * imgIn[:, j + 1] + a4 * imgIn[:, j + 2] + b1 * y2[:, j + 1] + b2 * y2[:, j + 2]
    imgOut = y1 + y2
    y1[0, :] = a1 * imgOut[0, :]
    y1[1, :] = a1 * imgOut[1, :] + a2 * imgOut[0, :] + b1 * y1[0, :]
    for i in range(2, W):
        y1[i, :] = a1 * imgOut[i, :] + a2 * imgOut[i - 1, :] + b1 * y1[i - 1, :] + b2 * y1[i - 2, :]
    y2[W - 1, :] = 0.0
    y2[W - 2, :] = a3 * imgOut[W - 1, :]
    for i in range(W - 3, -1, -1):
        y2[i, :] = a3 * imgOut[i + 1, :] + a4 * imgOut[i + 2, :] + b1 * y2[i + 1, :] + b2 * y2[i + 2, :]
    imgOut[:] = y1 + y2
    return imgOut


def hdiff(in_field, out_field, coeff):
    """Horizontal diffusion of a weather model: limited fluxes of a Laplacian."""
    lap = 4.0 * in_field[1:-1, 1:-1, :] - (in_field[2:, 1:-1, :] + in_field[:-2, 1:-1, :] + in_field[1:-1, 2:, :] + in_field[1:-1, :-2, :])
    along_x = lap[1:, 1:-1, :] - lap[:-1, 1:-1, :]
    flux_x = np.where(along_x * (in_field[2:-1, 2:-2, :] - in_field[1:-2, 2:-2, :]) > 0, 0.0, along_x)
    along_y = lap[1:-1, 1:, :] - lap[1:-1, :-1, :]
    flux_y = np.where(along_y * (in_field[2:-2, 2:-1, :] - in_field[2:-2, 1:-2, :]) > 0, 0.0, along_y)
    out_field[:, :, :] = in_field[2:-2, 2:-2, :] - coeff * (flux_x[1:, :, :] - flux_x[:-1, :, :] + flux_y[:, 1:, :] - flux_y[:, :-1, :])


def vadv(utens_stage, u_stage, wcon, u_pos, utens, dtr_stage):
    """Vertical advection of a weather model: a tridiagonal system along the third axis at every point."""
    I, J, K = utens_stage.shape
    ccol = np.zeros_like(utens_stage)
    dcol = np.zeros_like(utens_stage)
    gcv = 0.25 * (wcon[1:, :, 1] + wcon[:-1, :, 1])
    ccol[:, :, 0] = gcv * BET_P
    first = dtr_stage - ccol[:, :, 0]
    correction = -gcv * BET_M * (u_stage[:, :, 1] - u_stage[:, :, 0])
    dcol[:, :, 0] = (dtr_stage * u_pos[:, :, 0] + utens[:, :, 0] + utens_stage[:, :, 0] + correction) / first
    ccol[:, :, 0] = ccol[:, :, 0] / first
    for k in range(1, K - 1):
        below = -0.25 * (wcon[1:, :, k] + wcon[:-1, :, k])
        above = 0.25 * (wcon[1:, :, k + 1] + wcon[:-1, :, k + 1])
        acol = below * BET_P
        bcol = dtr_stage - acol - above * BET_P
        change = -below * BET_M * (u_stage[:, :, k - 1] - u_stage[:, :, k]) - above * BET_M * (u_stage[:, :, k + 1] - u_stage[:, :, k])
        right = dtr_stage * u_pos[:, :, k] + utens[:, :, k] + utens_stage[:, :, k] + change
        divided = 1.0 / (bcol - ccol[:, :, k - 1] * acol)
        ccol[:, :, k] = above * BET_P * divided
        dcol[:, :, k] = (right - dcol[:, :, k - 1] * acol) * divided
    last = -0.25 * (wcon[1:, :, K - 1] + wcon[:-1, :, K - 1])
    lowest = last * BET_P
    ending = -last * BET_M * (u_stage[:, :, K - 2] - u_stage[:, :, K - 1])
    rest = dtr_stage * u_pos[:, :, K - 1] + utens[:, :, K - 1] + utens_stage[:, :, K - 1] + ending
    dcol[:, :, K - 1] = (rest - dcol[:, :, K - 2] * lowest) / (dtr_stage - lowest - ccol[:, :, K - 2] * lowest)
    data = dcol[:, :, K - 1].copy()
    utens_stage[:, :, K - 1] = dtr_stage * (data - u_pos[:, :, K - 1])
    for k in range(K - 2, -1, -1):
        data[:] = dcol[:, :, k] - ccol[:, :, k] * data
        utens_stage[:, :, k] = dtr_stage * (data - u_pos[:, :, k])


def divergence(b, rho, dt, u, v, dx, dy):
    """The right side of the pressure equation."""
    ux = (u[1:-1, 2:] - u[1:-1, :-2]) / (2.0 * dx)
    uy = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2.0 * dy)
    vx = (v[1:-1, 2:] - v[1:-1, :-2]) / (2.0 * dx)
    vy = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2.0 * dy)
    b[1:-1, 1:-1] = rho * ((ux + vy) / dt - ux * ux - 2.0 * uy * vx - vy * vy)


def relax_pressure(nit, p, dx, dy, b):
    """Jacobi steps for the pressure, with its conditions on the walls."""
    whole = 2.0 * (dx**2 + dy**2)
    for q in range(nit):
        pn = p.copy()
        p[1:-1, 1:-1] = ((pn[1:-1, 2:] + pn[1:-1, :-2]) * dy**2 + (pn[2:, 1:-1] + pn[:-2, 1:-1]) * dx**2) / whole
        p[1:-1, 1:-1] -= dx**2 * dy**2 / whole * b[1:-1, 1:-1]
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0.0


def cavity_flow(nx, ny, nt, nit, u, v, dt, dx, dy, p, rho, nu):
    """Flow in a box whose lid moves: velocities and pressure, explicit in time."""
    b = np.zeros((ny, nx), dtype=p.dtype)
    for n in range(nt):
        un = u.copy()
        vn = v.copy()
        divergence(b, rho, dt, u, v, dx, dy)
        relax_pressure(nit, p, dx, dy, b)
        uc = un[1:-1, 1:-1]
        vc = vn[1:-1, 1:-1]
        u[1:-1, 1:-1] = (
            uc
            - uc * dt / dx * (uc - un[1:-1, :-2])
            - vc * dt / dy * (uc - un[:-2, 1:-1])
            - dt / (2.0 * rho * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
            + nu * dt / dx**2 * (un[1:-1, 2:] - 2.0 * uc + un[1:-1, :-2])
            + nu * dt / dy**2 * (un[2:, 1:-1] - 2.0 * uc + un[:-2, 1:-1])
        )
        v[1:-1, 1:-1] = (
            vc
            - uc * dt / dx * (vc - vn[1:-1, :-2])
            - vc * dt / dy * (vc - vn[:-2, 1:-1])
            - dt / (2.0 * rho * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])
            + nu * dt / dx**2 * (vn[1:-1, 2:] - 2.0 * vc + vn[1:-1, :-2])
            + nu * dt / dy**2 * (vn[2:, 1:-1] - 2.0 * vc + vn[:-2, 1:-1])
        )
        u[0, :] = 0.0
        u[:, 0] = 0.0
        u[:, -1] = 0.0
        u[-1, :] = 1.0
        v[0, :] = 0.0
        v[-1, :] = 0.0
        v[:, 0] = 0.0
        v[:, -1] = 0.0
