"""Eliminates one rank's blocks from the top down, inverts them from the bottom up, and solves with them.

Index t is the tip, and `top` is the first block of a rank that is not the first: it is kept, and the row F couples it to the block that is
eliminated. `closes` eliminates all blocks, as one process alone does; otherwise the last one is kept too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from armillary import arrays

from ..blocks.chains import Chain
from ..blocks.kernels import adjoint, cholesky, hermitian, inverse_of, left_solve, log_of_diagonal, right_solve

_NAMES = ("diagonal", "lower", "arrow", "fill")


@dataclass(frozen=True)
class Boundary:
    """The blocks that a rank keeps: `diagonals` and `arrows` of [top,] last, `coupling` (last, top), `out` (next rank's top, last).

    `tip` is what the elimination adds to the tip. After the inversion the same places hold blocks of the inverse, and `tip` its tip.
    """

    diagonals: tuple[Any, ...]
    arrows: tuple[Any, ...]
    coupling: Any | None
    out: Any | None
    tip: Any

    def parts(self) -> list[Any]:
        """Returns the arrays that travel, in a fixed order; not the tip."""
        return [x for x in (*self.diagonals, *self.arrows, self.coupling, self.out) if x is not None]


def eliminate(chain: Chain, labels: Sequence[int], tip: Any, middle: bool, closes: bool) -> tuple[Boundary | None, Any]:
    """Returns L of the eliminated blocks into the chain's target; what stays, and Σ log L_kk. `tip` (a, a) starts as zeros."""
    xp, count = arrays.namespace(tip), len(labels)
    stays = count if closes else count - 1
    logs = xp.zeros((), dtype=xp.float64, device=arrays.device_of(tip))
    add_d = add_t = fill = top = top_t = None
    kept: list[Any] = []
    arrows: list[Any] = []
    out = None
    for i, a in chain.walk(range(count), _NAMES[:3]):
        low = a.get("lower")
        d = xp.asarray(a["diagonal"], copy=True) if add_d is None else a["diagonal"] + add_d
        t = xp.asarray(a["arrow"], copy=True) if add_t is None else a["arrow"] + add_t
        if middle and i == 0:
            top, top_t, fill = d, t, xp.asarray(adjoint(low), copy=True)
            continue
        if i == stays:
            kept, arrows, out = [d], [t], None if low is None else xp.asarray(low, copy=True)
            continue
        factor = cholesky(d, f"block {labels[i]}")
        logs = logs + log_of_diagonal(factor)
        t = right_solve(factor, t)
        tip = tip - t @ adjoint(t)
        stored_fill = None
        if fill is not None:
            stored_fill = fill = right_solve(factor, fill)
            top, top_t = top - fill @ adjoint(fill), top_t - t @ adjoint(fill)
        if low is not None:
            low = right_solve(factor, low)
            add_d, add_t = -(low @ adjoint(low)), -(t @ adjoint(low))
            fill = None if fill is None else -(fill @ adjoint(low))
        chain.store(i, diagonal=factor, lower=low, arrow=t, fill=stored_fill)
    chain.flush()
    if closes:
        return Boundary((), (), None, None, tip), logs
    if middle:
        assert fill is not None
        return Boundary((top, *kept), (top_t, *arrows), adjoint(fill), out, tip), logs
    return Boundary(tuple(kept), tuple(arrows), None, out, tip), logs


def invert(chain: Chain, count: int, tip: Any, boundary: Boundary | None) -> None:
    """Returns blocks of the inverse into the chain's target, which may be its source; `tip` is X_tt, `boundary` what the reduced system
    gave.
    """
    middle = boundary is not None and len(boundary.diagonals) == 2
    last = count - 1
    x: Any = None
    x_t = f = top = top_t = x
    if boundary is not None:
        x, x_t = boundary.diagonals[-1], boundary.arrows[-1]
        if middle:
            top, top_t, f = boundary.diagonals[0], boundary.arrows[0], adjoint(boundary.coupling)
    order = range(count - 1 if boundary is None else count - 2, 0 if middle else -1, -1)
    for i, factor in chain.walk(order, _NAMES if middle else _NAMES[:3]):
        w, t = inverse_of(factor["diagonal"]), factor["arrow"]
        low, fill = (factor["lower"] if x is not None else None), factor.get("fill")
        # Each sum is one row of X·L = L⁻ᴴ, read from right to left.
        sum_t = tip @ t
        if low is not None:
            sum_low, sum_t = x @ low + adjoint(x_t) @ t, sum_t + x_t @ low
        if fill is not None:
            sum_low, sum_t = sum_low + adjoint(f) @ fill, sum_t + top_t @ fill
            f_new = -((f @ low + top @ fill + adjoint(top_t) @ t) @ w)
        new_t = -(sum_t @ w)
        inner = adjoint(w) - adjoint(new_t) @ t
        new_low = None
        if low is not None:
            new_low = -(sum_low @ w)
            inner = inner - adjoint(new_low) @ low
        if fill is not None:
            f = f_new
            inner = inner - adjoint(f) @ fill
        x, x_t = hermitian(inner @ w), new_t
        chain.store(i, diagonal=x, lower=new_low, arrow=x_t)
    if boundary is not None:
        chain.store(last, diagonal=boundary.diagonals[-1], arrow=boundary.arrows[-1], lower=boundary.out)
    if middle:
        chain.store(0, diagonal=top, arrow=top_t, lower=adjoint(f))
    chain.flush()


def forward(chain: Chain, count: int, rhs: Any, rhs_t: Any, middle: bool, closes: bool) -> tuple[Any, Any]:
    """Returns y with L·y = rhs on the eliminated blocks; `rhs` (count, b, k), `rhs_t` (a, k) are changed where blocks stay."""
    stays = count if closes else count - 1
    for i, factor in chain.walk(range(1 if middle else 0, stays), _NAMES if middle else _NAMES[:3]):
        y = left_solve(factor["diagonal"], rhs[i])
        rhs[i, ...] = y
        if i + 1 < count:
            rhs[i + 1, ...] = rhs[i + 1] - factor["lower"] @ y
        if middle:
            rhs[0, ...] = rhs[0] - factor["fill"] @ y
        rhs_t = rhs_t - factor["arrow"] @ y
    return rhs, rhs_t


def backward(chain: Chain, count: int, x: Any, x_t: Any, middle: bool, closes: bool) -> Any:
    """Returns x with Lᴴ·x = y; the blocks that stay hold their solution already."""
    stays = count if closes else count - 1
    for i, factor in chain.walk(range(stays - 1, 0 if middle else -1, -1), _NAMES if middle else _NAMES[:3]):
        y = x[i] - adjoint(factor["arrow"]) @ x_t
        if i + 1 < count:
            y = y - adjoint(factor["lower"]) @ x[i + 1]
        if middle:
            y = y - adjoint(factor["fill"]) @ x[0]
        x[i, ...] = left_solve(factor["diagonal"], y, turned=True)
    return x
