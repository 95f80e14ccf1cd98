"""The stage `range` turns the bound that a person asks for into the absolute bound that quantisers keep.

It is ε for abs, ε·(max − min) over the finite values for rel, and ε·|x| point by point for pw_rel (through `log`); psnr is turned into abs
before any stage runs.

Layout of `bound`: two float64, the absolute bound and 1 where quantised values of the chunk take 64 bits (|x|/(2ε) reaches 2^30), else
0; for pw_rel the first is the relative ε itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError, unknown

from .quantise import NARROW
from .slabs import each, shares
from .stage import Context, Port, Stage

MODES = ("abs", "rel", "pw_rel", "psnr")
_PIECE = 1 << 16


def check_bound(mode: str, bound: float) -> float:
    """Returns the bound as a float, or raises InputError."""
    if mode not in MODES:
        raise unknown("error bound mode", str(mode), MODES)
    try:
        value = float(bound)
    except (TypeError, ValueError):
        raise InputError(f"bound: found {bound!r}; expected a positive finite number") from None
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"bound: found {value}; expected a positive finite number")
    if mode == "pw_rel" and value >= 1:
        raise InputError(f"bound: found {value}; expected a pw_rel bound below 1")
    return value


def finite_span(x: np.ndarray, threads: int = 1) -> tuple[float, float]:
    """Returns the least and the largest finite value; (inf, -inf) where there is none."""
    flat = x.reshape(-1)

    def part(start: int, stop: int) -> tuple[float, float]:
        # The pieces are still in the cache when their largest value is looked for.
        cut = [_finite_span(flat[a : min(stop, a + _PIECE)]) for a in range(start, stop, _PIECE)]
        return min(low for low, _ in cut), max(high for _, high in cut)

    found = each(part, shares(flat.size, threads, 1 << 16), threads)
    # Which zero NumPy finds first depends on its vector width; + 0.0 makes −0.0 the other one.
    return min((low for low, _ in found), default=math.inf) + 0.0, max((high for _, high in found), default=-math.inf) + 0.0


def _finite_span(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if values.size else (math.inf, -math.inf)


def absolute_bound(mode: str, bound: float, span: tuple[float, float]) -> float:
    """Returns ε as an absolute number; it is 0 where the range is zero and the bound relative, and then every bit is kept."""
    low, high = span
    if mode in ("abs", "pw_rel"):
        return bound
    if low > high:
        return 0.0
    # bound·(high − low) would overflow for a range over the whole of float64.
    return bound * (high - low) if math.isfinite(high - low) else bound * high - bound * low


def bound_port(eps: float, peak: float) -> np.ndarray:
    """Returns the port `bound` for values up to `peak`."""
    return np.array([eps, float(not peak < NARROW * (2.0 * eps))])


@dataclass(frozen=True)
class Range(Stage):
    """Normalises the bound: finds the range of the values and gives the absolute ε."""

    name = "range"
    inputs = (Port("data", "float"),)
    outputs = (Port("data", "float"), Port("bound", "float64", stored=True))

    def forward(self, ctx: Context, *, data: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns `data` as it is, and `bound`."""
        own = ctx.own or finite_span(data, ctx.threads)
        peak = max(abs(own[0]), abs(own[1])) if own[0] <= own[1] else 0.0
        return {"data": data, "bound": bound_port(absolute_bound(ctx.mode, ctx.bound, ctx.span or own), peak)}

    def inverse(self, ctx: Context, *, data: np.ndarray, **_: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns `data` as it is."""
        return {"data": data}
