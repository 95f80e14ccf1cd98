"""Compiled steps of primal-dual hybrid gradients over sparse rows, which do products and updates in one pass over each matrix.

A step takes x⁺ = clip(x − τ(c − Aᵀy)), then with t = y/σ − A(2x⁺ − x) the prices y⁺ = σ(t − clip(t, −row_upper, −row_lower)).

Indices are unsigned: a signed one may count from the end, which costs a test for every entry, and steps over short rows take twice as long.
"""

from __future__ import annotations

import numba
import numpy as np

from armillary.kernels import loop, parallel_loop

_ONE = np.uint64(1)


def unsigned(matrix):
    """Returns a matrix of sparse rows as (numbers, columns, where rows begin), with unsigned indices."""
    kind = np.uint32 if matrix.indices.dtype == np.int32 else np.uint64
    return matrix.data, matrix.indices.view(kind), matrix.indptr.view(kind)


def _halpern(count, k, tau, sigma, x, y, x0, y0, xt, yt, xbar, a, ai, ap, at, ati, atp, c, rl, ru, lo, up):
    """Takes `count` reflected Halpern steps from step k of this run, z ← (k+1)/(k+2)·(2T(z) − z) + z₀/(k+2); xt, yt get T of the last z."""
    columns, rows = np.uint64(x.shape[0]), np.uint64(y.shape[0])
    for step in range(count):
        for j in numba.prange(columns):
            g = c[j]
            for e in range(atp[j], atp[j + _ONE]):
                g -= at[e] * y[ati[e]]
            new = x[j] - tau * g
            new = new if new > lo[j] else lo[j]
            new = new if new < up[j] else up[j]
            xt[j] = new
            xbar[j] = 2.0 * new - x[j]
        weight = (k + step + 1.0) / (k + step + 2.0)
        last = step == count - 1
        for i in numba.prange(rows):
            t = y[i] / sigma
            for e in range(ap[i], ap[i + _ONE]):
                t -= a[e] * xbar[ai[e]]
            inside = t if t > -ru[i] else -ru[i]
            inside = inside if inside < -rl[i] else -rl[i]
            new = sigma * (t - inside)
            yt[i] = new
            if not last:
                y[i] = weight * (2.0 * new - y[i]) + (1.0 - weight) * y0[i]
        if not last:
            for j in numba.prange(columns):
                x[j] = weight * xbar[j] + (1.0 - weight) * x0[j]


#: Small programs run serially, because starting threads would take longer than a step.
halpern_serial = loop(_halpern)
halpern_parallel = parallel_loop(nogil=False)(_halpern)


def halpern_anywhere(count, k, tau, sigma, x, y, x0, y0, p):
    """Takes the same steps in products and vector operations, for programs on accelerators or over ranks; returns (x, y, T's x, T's y)."""
    clip = p.xp.clip
    for step in range(count):
        xt = clip(x - tau * (p.cost - p.gradient(y)), p.lower, p.upper)
        xbar = 2.0 * xt - x
        t = y / sigma - p.activity(xbar)
        yt = sigma * (t - clip(t, -p.row_upper, -p.row_lower))
        if step < count - 1:
            weight = (k + step + 1.0) / (k + step + 2.0)
            y = weight * (2.0 * yt - y) + (1.0 - weight) * y0
            x = weight * xbar + (1.0 - weight) * x0
    return x, y, xt, yt


@loop
def adaptive(count, total, eta, omega, x, y, sx, sy, weight, xt, yt, a, ai, ap, at, ati, atp, c, rl, ru, lo, up, grad):
    """Takes `count` steps of PDLP's rule: a step is taken where it is short enough for what it did, and tried again shorter otherwise.

    Adds each accepted point, weighted by its step, to sx and sy. `grad` holds Aᵀy of the present y. Returns (step, weight, tries).
    """
    tries = total
    columns, rows = np.uint64(x.shape[0]), np.uint64(y.shape[0])
    following = np.empty_like(grad)
    for _ in range(count):
        while True:
            tries += 1
            tau, sigma = eta / omega, eta * omega
            moved_x = 0.0
            for j in range(columns):
                xt[j] = min(max(x[j] - tau * (c[j] - grad[j]), lo[j]), up[j])
                d = xt[j] - x[j]
                moved_x += d * d
            moved_y = 0.0
            for i in range(rows):
                t = y[i] / sigma
                for e in range(ap[i], ap[i + _ONE]):
                    t -= a[e] * (2.0 * xt[ai[e]] - x[ai[e]])
                yt[i] = sigma * (t - min(max(t, -ru[i]), -rl[i]))
                d = yt[i] - y[i]
                moved_y += d * d
            cross = 0.0
            for j in range(columns):
                new = 0.0
                for e in range(atp[j], atp[j + _ONE]):
                    new += at[e] * yt[ati[e]]
                following[j] = new
                cross += (new - grad[j]) * (xt[j] - x[j])
            cross = abs(cross)
            limit = np.inf if cross == 0.0 else 0.5 * (omega * moved_x + moved_y / omega) / cross
            taken = eta
            first, second = (1.0 - (tries + 1.0) ** -0.3) * limit, (1.0 + (tries + 1.0) ** -0.6) * eta
            eta = min(first, second)
            if taken <= limit:
                break
        for j in range(columns):
            x[j] = xt[j]
            sx[j] += taken * xt[j]
            grad[j] = following[j]
        for i in range(rows):
            y[i] = yt[i]
            sy[i] += taken * yt[i]
        weight += taken
    return eta, weight, tries
