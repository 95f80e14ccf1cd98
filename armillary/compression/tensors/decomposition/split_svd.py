"""The singular value decomposition in two halves: Householder bidiagonalisation, then implicit-shift QR on the bidiagonal.

A small processor runs the halves on different units; here they are really run, and the number of sweeps of the second half is reported,
because the model of the processor is charged with it. `engine="lapack"` runs the same halves by LAPACK (gebrd, orgbr, bdsqr).
`engine="plain"` runs phase 1 in loops of our own, one reflection at a time: BLAS rounds differently on different processors, and a last
bit can decide whether one more sweep is needed, so the model takes the sweeps from these loops, which are the same everywhere.

Phase 1 gathers panels of 32 reflections, so that half of its work is in products: A ← A − V·Yᵀ − X·Wᵀ. Matrices more than 5/3 as high as
wide are brought to a triangle by QR first. Phase 2 chases bulges with Wilkinson's shift and splits where a superdiagonal is negligible.
Phase 3 sorts by index, phase 4 finds the rank by a running sum of squares from the small end; only what is kept is gathered.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

Array = np.ndarray[Any, Any]
Engine = Literal["split", "lapack", "plain"]
PANEL = 32
#: A matrix that is this much higher than wide goes through QR first.
TALL = 5 / 3
#: Most sweeps of phase 2 for each column.
SWEEPS = 30


@dataclass(frozen=True, eq=False)
class Svd:
    """U (m×r), σ (r, descending) and Vᵀ (r×n), with the sweeps that phase 2 took and how many singular values there were."""

    u: Array
    s: Array
    vt: Array
    sweeps: int
    full: int


def svd(a: Array, tail: float = 0.0, max_rank: int | None = None, engine: Engine = "split") -> Svd:
    """Returns the decomposition of a real m×n matrix, cut to the least rank (at least 1) whose tail √Σσ² is at most `tail`."""
    if a.ndim != 2 or a.dtype not in (np.float32, np.float64):
        raise InputError(f"svd: found {a.ndim} dimensions of {a.dtype}; expected a matrix of float32 or float64")
    m, n = a.shape
    if 0 in (m, n):
        raise InputError(f"svd: found the shape {a.shape}; expected at least one row and column")
    if m < n:
        turned = svd(np.ascontiguousarray(a.T), tail, max_rank, engine)
        return Svd(np.ascontiguousarray(turned.vt.T), turned.s, np.ascontiguousarray(turned.u.T), turned.sweeps, turned.full)
    outer = None
    if m > TALL * n and engine != "plain":
        outer, a = np.linalg.qr(a)
    # The matrix is scaled to entries of about 1, because squares of subnormal entries would vanish.
    scale = float(np.max(np.abs(a)))
    if not np.isfinite(scale):
        raise InputError("svd: found an entry that is not finite; expected finite numbers")
    power = 2.0 ** -np.frexp(scale)[1] if scale > 0 else 1.0
    d, e, u, vt = bidiagonal(a * a.dtype.type(power), engine)
    ut = np.ascontiguousarray(u.T)
    if engine == "lapack":
        sweeps = _lapack_diagonal(d, e, ut, vt)
    else:
        sweeps = _diagonalised(d, e, ut, vt, SWEEPS * len(d))
        if sweeps < 0:
            raise InputError("svd: the QR iteration did not converge")
    negative = d < 0
    d[negative], vt[negative] = -d[negative], -vt[negative]
    d /= power
    order, rank = truncated(d, tail, max_rank)
    kept = order[:rank]
    left = np.ascontiguousarray(ut[kept].T)
    return Svd(left if outer is None else outer @ left, d[kept], vt[kept], sweeps, len(d))


def truncated(s: Array, tail: float, max_rank: int | None = None) -> tuple[Array, int]:
    """Returns (indices by descending value, how many to keep): the least rank ≥ 1 whose left-out values have √Σσ² ≤ tail; all for a tail of
    0.
    """
    order = np.argsort(-s, kind="stable")
    # Values are in units of the largest, because squares of very small values would vanish.
    largest = float(s[order[0]]) or 1.0
    square, limit = 0.0, (float(tail) / largest) ** 2
    rank = len(s)
    while rank > 1 and tail > 0:
        square += (float(s[order[rank - 1]]) / largest) ** 2
        if square > limit:
            break
        rank -= 1
    return order, rank if max_rank is None else min(rank, max_rank)


def bidiagonal(a: Array, engine: Engine = "split") -> tuple[Array, Array, Array, Array]:
    """Returns (d, e, U, Vᵀ) with a = U·B·Vᵀ, B upper bidiagonal of diagonal d (n) and superdiagonal e (n−1); a is m×n with m ≥ n."""
    if engine == "lapack":
        return _lapack_bidiagonal(a)
    m, n = a.shape
    a = np.array(a, order="C")
    d, e = np.zeros(n, a.dtype), np.zeros(max(0, n - 1), a.dtype)
    if engine == "plain":
        plain_u, plain_v = np.eye(m, n, dtype=a.dtype), np.eye(n, dtype=a.dtype)
        _plainly_bidiagonal(a, d, e, plain_u, plain_v, np.zeros(n, a.dtype), np.zeros(n, a.dtype), np.zeros(n, a.dtype))
        return d, e, plain_u, np.ascontiguousarray(plain_v.T)
    tauq, taup = np.zeros(n, a.dtype), np.zeros(n, a.dtype)
    for start in range(0, n, PANEL):
        width = min(PANEL, n - start)
        _panel(a[start:, start:], width, d[start:], e[start:], tauq[start:], taup[start:])
    u = _accumulated(a, tauq, n)
    v = np.eye(n, dtype=a.dtype)
    if n > 1:
        v[1:, 1:] = _accumulated(np.ascontiguousarray(a[: n - 1, 1:].T), taup[: n - 1], n - 1)
    return d, e, u, np.ascontiguousarray(v.T)


def _panel(a: Array, width: int, d: Array, e: Array, tauq: Array, taup: Array) -> None:
    """Reduces `width` rows and columns of the trailing matrix; reflectors stay below the diagonal and right of the superdiagonal."""
    m, n = a.shape
    x, y = np.zeros((m, width), a.dtype), np.zeros((n, width), a.dtype)
    for i in range(width):
        if i:
            a[i:, i] -= a[i:, :i] @ y[i, :i] + x[i:, :i] @ a[:i, i]
        d[i], tauq[i] = _reflector(a[i:, i])
        if i == n - 1:
            break
        v = a[i:, i]
        y[i + 1 :, i] = v @ a[i:, i + 1 :]
        if i:
            y[i + 1 :, i] -= y[i + 1 :, :i] @ (v @ a[i:, :i]) + (v @ x[i:, :i]) @ a[:i, i + 1 :]
        y[i + 1 :, i] *= tauq[i]
        a[i, i + 1 :] -= y[i + 1 :, : i + 1] @ a[i, : i + 1]
        if i:
            a[i, i + 1 :] -= x[i, :i] @ a[:i, i + 1 :]
        e[i], taup[i] = _reflector(a[i, i + 1 :])
        w = a[i, i + 1 :]
        x[i + 1 :, i] = a[i + 1 :, i + 1 :] @ w - a[i + 1 :, : i + 1] @ (w @ y[i + 1 :, : i + 1])
        if i:
            x[i + 1 :, i] -= x[i + 1 :, :i] @ (a[:i, i + 1 :] @ w)
        x[i + 1 :, i] *= taup[i]
    if width < n:
        a[width:, width:] -= a[width:, :width] @ y[width:, :width].T + x[width:, :width] @ a[:width, width:]


def _reflector(x: Array) -> tuple[Any, Any]:
    """Turns x into v with v₁ = 1 such that (I − τ v vᵀ) x = β e₁; gives (β, τ). v₁ = x₁ + sign(x₁)‖x‖ before scaling."""
    alpha = x[0]
    rest = x[1:]
    norm = np.sqrt(alpha * alpha + rest @ rest) if len(rest) else np.abs(alpha)
    if len(rest) == 0 or not rest.any():
        x[0] = 1
        return alpha, x.dtype.type(0)
    beta = -norm if alpha >= 0 else norm
    rest /= alpha - beta
    x[0] = 1
    return beta, (beta - alpha) / beta


def _accumulated(a: Array, tau: Array, columns: int) -> Array:
    """Returns the first `columns` columns of H₁H₂…, whose vectors lie below the diagonal of a, from the last panel to the first."""
    m, k = a.shape[0], len(tau)
    q = np.eye(m, columns, dtype=a.dtype)
    for start in range((k - 1) // PANEL * PANEL, -1, -PANEL):
        width = min(PANEL, k - start)
        v = np.tril(a[start:, start : start + width], -1)
        v[np.arange(width), np.arange(width)] = 1
        t = np.zeros((width, width), a.dtype)
        inner = v.T @ v
        for i in range(width):
            t[i, i] = tau[start + i]
            t[:i, i] = -tau[start + i] * (t[:i, :i] @ inner[:i, i])
        block = q[start:, start:]
        block -= v @ (t @ (v.T @ block))
    return q


@loop
def squares(x):
    """Returns the sum of the squares of a vector, added from its first element to its last."""
    total = x.dtype.type(0)
    for k in range(x.shape[0]):
        total += x[k] * x[k]
    return total


@loop
def _reflected(x, alpha):
    """Turns x into the rest of v, v₁ = 1, whose reflection maps (alpha, x) to a multiple of e₁; returns that multiple and τ."""
    total = squares(x)
    if total == 0:
        return alpha, total
    norm = np.sqrt(alpha * alpha + total)
    beta = -norm if alpha >= 0 else norm
    for k in range(x.shape[0]):
        x[k] /= alpha - beta
    return beta, (beta - alpha) / beta


@loop
def _reflect_rows(v, tau, rows, first, room):
    """Applies I − τ v vᵀ, v₁ = 1, to the columns of `rows` from `first` on; `room` has one entry per column."""
    if tau == 0:
        return
    for j in range(first, rows.shape[1]):
        room[j] = rows[0, j]
    for i in range(1, rows.shape[0]):
        for j in range(first, rows.shape[1]):
            room[j] += v[i - 1] * rows[i, j]
    for j in range(first, rows.shape[1]):
        room[j] *= tau
        rows[0, j] -= room[j]
    for i in range(1, rows.shape[0]):
        for j in range(first, rows.shape[1]):
            rows[i, j] -= v[i - 1] * room[j]


@loop
def _plainly_bidiagonal(a, d, e, u, v, tauq, taup, room):
    """Leaves the bidiagonal of a (m×n, m ≥ n) in d and e, and both orthogonal factors in u and v, which come as identities."""
    m, n = a.shape
    for k in range(n):
        d[k], tauq[k] = _reflected(a[k + 1 :, k], a[k, k])
        _reflect_rows(a[k + 1 :, k], tauq[k], a[k:], k + 1, room)
        if k == n - 1:
            break
        e[k], taup[k] = _reflected(a[k, k + 2 :], a[k, k + 1])
        if taup[k] != 0:
            for i in range(k + 1, m):
                total = a[i, k + 1]
                for j in range(k + 2, n):
                    total += a[k, j] * a[i, j]
                total *= taup[k]
                a[i, k + 1] -= total
                for j in range(k + 2, n):
                    a[i, j] -= total * a[k, j]
    for k in range(n - 1, -1, -1):
        _reflect_rows(a[k + 1 :, k], tauq[k], u[k:], k, room)
    for k in range(n - 2, -1, -1):
        _reflect_rows(a[k, k + 2 :], taup[k], v[k + 1 :], k + 1, room)


@loop
def _turn(rows, i, j, c, s):
    """Rotates rows i and j to (c·i + s·j, c·j − s·i)."""
    for k in range(rows.shape[1]):
        x, y = rows[i, k], rows[j, k]
        rows[i, k] = c * x + s * y
        rows[j, k] = c * y - s * x


@loop
def _givens(f, g):
    """Returns (c, s, r) with c·f + s·g = r and c·g − s·f = 0."""
    if g == 0:
        return f / f if f != 0 else g + 1, g, f
    r = np.hypot(f, g)
    return f / r, g / r, r


@loop
def _diagonalised(d, e, ut, vt, most):
    """Runs implicit-shift QR on the bidiagonal (d, e) and applies its rotations to the rows of Uᵀ and Vᵀ.

    Returns the number of sweeps, or −1 if there were too many.
    """
    n = d.shape[0]
    unit = np.finfo(d.dtype).eps / 2
    largest = d.dtype.type(0)
    for i in range(n):
        largest = max(largest, abs(d[i]))
        if i < n - 1:
            largest = max(largest, abs(e[i]))
    tiny = unit * largest
    sweeps, high = 0, n - 1
    while high > 0:
        for i in range(high):
            if abs(e[i]) <= unit * (abs(d[i]) + abs(d[i + 1])) or abs(e[i]) <= unit * tiny:
                e[i] = 0
        while high > 0 and e[high - 1] == 0:
            high -= 1
        if high == 0:
            break
        low = high - 1
        while low > 0 and e[low - 1] != 0:
            low -= 1
        split = False
        for i in range(low, high):
            if abs(d[i]) <= unit * tiny:
                # The row of a zero on the diagonal is rotated away against those below.
                d[i] = 0
                f = e[i]
                e[i] = 0
                for k in range(i + 1, high + 1):
                    c, s, r = _givens(d[k], f)
                    d[k] = r
                    _turn(ut, k, i, c, s)
                    if k < high:
                        f = -s * e[k]
                        e[k] = c * e[k]
                split = True
                break
        if not split and abs(d[high]) <= unit * tiny:
            # If the last one is zero, its column is rotated away against those before.
            d[high] = 0
            f = e[high - 1]
            e[high - 1] = 0
            for k in range(high - 1, low - 1, -1):
                c, s, r = _givens(d[k], f)
                d[k] = r
                _turn(vt, k, high, c, s)
                if k > low:
                    f = -s * e[k - 1]
                    e[k - 1] = c * e[k - 1]
            split = True
        if split:
            continue
        if sweeps >= most:
            return -1
        sweeps += 1
        # Wilkinson's shift: the eigenvalue of the last 2×2 block of BᵀB that is nearer its corner.
        before = e[high - 2] if high - 1 > low else d.dtype.type(0)
        a11 = d[high - 1] * d[high - 1] + before * before
        a12 = d[high - 1] * e[high - 1]
        a22 = d[high] * d[high] + e[high - 1] * e[high - 1]
        half = (a11 - a22) / 2
        root = np.hypot(half, a12)
        shift = a22 - a12 * a12 / (half + root if half >= 0 else half - root) if a12 != 0 else a22
        f, g = d[low] * d[low] - shift, d[low] * e[low]
        for k in range(low, high):
            c, s, r = _givens(f, g)
            if k > low:
                e[k - 1] = r
            f = c * d[k] + s * e[k]
            e[k] = c * e[k] - s * d[k]
            g = s * d[k + 1]
            d[k + 1] = c * d[k + 1]
            _turn(vt, k, k + 1, c, s)
            c, s, r = _givens(f, g)
            d[k] = r
            f = c * e[k] + s * d[k + 1]
            d[k + 1] = c * d[k + 1] - s * e[k]
            _turn(ut, k, k + 1, c, s)
            if k < high - 1:
                g = s * e[k + 1]
                e[k + 1] = c * e[k + 1]
        e[high - 1] = f
    return sweeps


@cache
def _lapack(name: str) -> int:
    """Returns the address of a LAPACK function, which SciPy keeps for Cython."""
    from numba.extending import get_cython_function_address

    return int(get_cython_function_address("scipy.linalg.cython_lapack", name))


def _call(name: str, *arguments: Any) -> None:
    """Calls LAPACK; integers and letters go by reference, as Fortran wants them. The last is `info`."""
    held = [np.array(value, np.int32) if isinstance(value, int) else value for value in arguments]
    pointers = [
        ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p)
        for value in held
    ]
    info = np.zeros(1, np.int32)
    pointers.append(ctypes.c_void_p(info.ctypes.data))
    ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * len(pointers)))(_lapack(name))(*pointers)
    if info[0]:
        raise InputError(f"svd: LAPACK's {name} gave {int(info[0])}")


def _lapack_bidiagonal(a: Array) -> tuple[Array, Array, Array, Array]:
    letter = "s" if a.dtype == np.float32 else "d"
    m, n = a.shape
    packed = np.array(a, order="F")
    d, e = np.zeros(n, a.dtype), np.zeros(max(1, n - 1), a.dtype)
    tauq, taup = np.zeros(n, a.dtype), np.zeros(n, a.dtype)
    room = 64 * (m + n)
    work = np.empty(room, a.dtype)
    _call(f"{letter}gebrd", m, n, packed, m, d, e, tauq, taup, work, room)
    u, v = packed.copy(order="F"), np.asfortranarray(packed[:n])
    _call(f"{letter}orgbr", b"Q", m, n, n, u, m, tauq, work, room)
    _call(f"{letter}orgbr", b"P", n, n, m, v, n, taup, work, room)
    return d, e[: n - 1], np.ascontiguousarray(u), np.ascontiguousarray(v)


def _lapack_diagonal(d: Array, e: Array, ut: Array, vt: Array) -> int:
    """Runs bdsqr on rows of Uᵀ and Vᵀ in place. It does not say how many sweeps it took, so 2 per column are assumed."""
    letter = "s" if d.dtype == np.float32 else "d"
    n, m = len(d), ut.shape[1]
    # In Fortran's order the rows of C-ordered Uᵀ are the columns of U, which is what it wants; Vᵀ has to be turned.
    v = np.asfortranarray(vt)
    none = np.zeros((1, 1), d.dtype)
    off = np.concatenate([e, np.zeros(1, d.dtype)])
    _call(f"{letter}bdsqr", b"U", n, vt.shape[1], m, 0, d, off, v, n, ut, m, none, 1, np.empty(4 * n, d.dtype))
    vt[:] = v
    return 2 * n
