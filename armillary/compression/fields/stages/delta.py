"""The stages `none` and `delta` quantise without prediction and then take differences in the order of the values; they suit particles.

Layout. `none`: `quants`, int32 (int64 where `quantise.wide`), one per value; `raw_index` and `raw` as in `lorenzo`. `delta`: `codes` and
`outliers` as in `lorenzo`, the residual being the difference to the value before, 0 before the first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.parameters import parameter

from .lorenzo import check_raw
from .quantise import NARROW, WIDE, collect_violators, quantise_row, wide
from .slabs import each, shares
from .stage import Context, Port, Stage


@dataclass(frozen=True)
class Quantise(Stage):
    """Quantises values without prediction."""

    name = "none"
    inputs = (Port("data", "float"), Port("bound", "float64"))
    outputs = (Port("quants", "ints"), Port("raw_index", "index"), Port("raw", "float"))

    def forward(self, ctx: Context, *, data: np.ndarray, bound: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns quantised values and violators."""
        eps = float(bound[0])
        integer, limit = (np.int64, WIDE) if wide(bound) else (np.int32, NARROW)
        quants = np.empty(data.size, integer)
        found = each(
            lambda a, b: _quantise(data, quants, a, b, eps, 0.5 / eps, limit), shares(data.size, ctx.threads, 1 << 14), ctx.threads
        )
        index = np.concatenate(found)
        return {"quants": quants, "raw_index": index, "raw": data[index]}

    def inverse(  # type: ignore[override]
        self, ctx: Context, *, quants: np.ndarray, raw_index: np.ndarray, raw: np.ndarray, bound: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns the values, within the bound."""
        check_raw(ctx, raw_index, raw)
        if quants.size != ctx.size:
            raise InputError(f"quants: found {quants.size}; expected {ctx.size}")
        with np.errstate(over="ignore", invalid="ignore"):
            out = (2.0 * float(bound[0]) * quants.astype(np.float64)).astype(raw.dtype)
        out[raw_index] = raw
        return {"data": out}


@dataclass(frozen=True)
class Delta(Stage):
    """Takes differences of quantised values in their order."""

    radius: int = parameter(512, "differences below it are codes, others outliers", range=(2, 32768))

    name = "delta"
    inputs = (Port("quants", "ints"),)
    outputs = (Port("codes", "codes"), Port("outliers", "ints"))

    def forward(self, ctx: Context, *, quants: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns codes, and the differences that have no code."""
        with np.errstate(over="ignore"):
            d = np.diff(quants, prepend=quants.dtype.type(0))
        inside = (d > -self.radius) & (d < self.radius)
        codes = np.where(inside, d + quants.dtype.type(self.radius), 0).astype(np.uint16)
        return {"codes": codes, "outliers": d[~inside]}

    def inverse(self, ctx: Context, *, codes: np.ndarray, outliers: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the quantised values."""
        d = codes.astype(outliers.dtype) - outliers.dtype.type(self.radius)
        zeros = np.flatnonzero(codes == 0)
        if zeros.size != outliers.size:
            raise InputError(f"outliers: found {outliers.size}; expected {zeros.size}, one for each zero code")
        d[zeros] = outliers
        with np.errstate(over="ignore"):
            return {"quants": np.cumsum(d, dtype=outliers.dtype)}


@loop
def _quantise(data, quants, first, last, eps, inverse, limit):
    bad = quantise_row(data[first:last], quants[first:last], eps, inverse, limit)
    count = last - first if bad else 0
    index, raw = np.empty(count, np.uint32), np.empty(count, data.dtype)
    found = collect_violators(data[first:last], first, index, raw, 0, eps, inverse, limit) if bad else 0
    return index[:found].copy()
