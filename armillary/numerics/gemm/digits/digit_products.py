"""Products of digit planes in int8 with int32 sums, exact, and the float64 matrix that they add up to."""

from __future__ import annotations

from typing import Any

from armillary import arrays
from armillary.arrays.exact import MOST_INNER

from .slices import Digits

#: Diagonals of digit products that one int64 holds together: 31 bits and three shifts by 8, and 64 pieces of the inner index.
_TOGETHER = 4


def products(s: int) -> int:
    """Returns how many int8 matrix products `s` digits need: all pairs of planes (p, q) with p + q ≤ s − 1."""
    return s * (s + 1) // 2


def multiply(a: Digits, b: Digits, most_inner: int = MOST_INNER) -> arrays.Array:
    """Returns the product of two matrices in digits, `a` by rows (m×k) and `b` by columns (n×k), rounded to float64 once.

    Planes with p + q = d lie side by side along the inner index, so that each diagonal d is one integer product of inner size (d+1)·k; k
    is cut in pieces where (d+1)·k exceeds `most_inner`. Sums are integers throughout: no order or cut changes a bit.
    """
    xp = arrays.namespace(a.planes, b.planes)
    s, rows, inner = a.planes.shape
    piece = max(1, most_inner // s)
    groups = [range(first, min(first + _TOGETHER, s)) for first in range(0, s, _TOGETHER)]
    shape = (rows, b.planes.shape[1])
    sums = [xp.zeros(shape, dtype=xp.int64, device=arrays.device_of(a.planes)) for _ in groups]
    for start in range(0, inner, piece):
        width = min(piece, inner - start)
        left = _side_by_side(xp, a.planes[:, :, start : start + width])
        right = _side_by_side(xp, xp.flip(b.planes[:, :, start : start + width], axis=0))
        for number, group in enumerate(groups):
            joined = sums[number] if start == 0 else xp.zeros_like(sums[number])
            for d in group:
                part = arrays.int8_matmul(left[:, : (d + 1) * width], right[:, (s - 1 - d) * width :].T)
                joined = (joined << a.bits) + xp.astype(part, xp.int64)
            sums[number] = joined if start == 0 else sums[number] + joined
    return _put_together(xp, sums, [group[-1] for group in groups], a, b)


def _side_by_side(xp: Any, planes: arrays.Array) -> arrays.Array:
    """Returns s × rows × k as rows × (s·k)."""
    s, rows, width = planes.shape
    return xp.reshape(xp.permute_dims(planes, (1, 0, 2)), (rows, s * width))


def _put_together(xp: Any, sums: list[arrays.Array], last: list[int], a: Digits, b: Digits) -> arrays.Array:
    """Returns Σ sums[g] · 2^(−bits · last[g]), from the smallest on in pairs of float64, then scaled by rows and columns."""
    high = xp.zeros(sums[0].shape, dtype=xp.float64, device=arrays.device_of(sums[0]))
    low = xp.zeros_like(high)
    for total, d in zip(reversed(sums), reversed(last)):
        whole = xp.astype(total, xp.float64)
        rest = xp.astype(total - xp.astype(whole, xp.int64), xp.float64)
        unit = 2.0 ** (-a.bits * d)
        high, error = two_sum(high, whole * unit)
        low = low + (error + rest * unit)
    highest = 2 * a.bits * (a.planes.shape[0] - 1)
    return arrays.ldexp(high + low, a.scale[:, None] + b.scale[None, :] + highest)


def two_sum(x: arrays.Array, y: arrays.Array) -> tuple[arrays.Array, arrays.Array]:
    """Returns the rounded sum and its exact error (Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)
