"""The stage `log` turns a bound relative to each value into an absolute one on its logarithm.

|log2|x'| − log2|x|| ≤ log2(1 + ε) keeps |x'| ≤ (1 + ε)|x|, and more than |x|/(1 + ε) ≥ (1 − ε)|x|. One guard is taken off for the
rounding of both functions. Signs and zeros are stored apart. Both functions are sums and products in float64 alone, so that every machine
gives the same bits; values that are still beyond the bound after the decoder's own arithmetic are patched by `fz.encode_chunk`, which
decodes what it made.

Layout. `data`: float64, log2|x|, 0 for zeros and values that are not finite. `bound`: as in `range`, on that scale. `signs` and
`zeros`: bytes, one bit per value, lowest first; empty where no bit is set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from .bounds import bound_port
from .slabs import each, shares
from .stage import Context, Port, Stage

#: The guard for the error of both functions on the scale of the logarithm. Logarithms lie within ±1,075, where rounding to float64 costs
#: up to 2⁻⁴³ and the series less, so the guard is over four times their error; a bound below it is halved instead.
GUARD = 2.0**-40
_TERMS = 13
_LOG = np.array([2.0 / math.log(2) / (2 * k + 1) for k in range(_TERMS)])
_EXP = np.array([math.log(2) ** k / math.factorial(k) for k in range(16)])


@dataclass(frozen=True)
class Log(Stage):
    """Takes logarithms for bounds that are relative to each value."""

    name = "log"
    inputs = (Port("data", "float"), Port("bound", "float64"))
    outputs = (Port("data", "float64"), Port("bound", "float64", stored=True), Port("signs", "bytes"), Port("zeros", "bytes"))
    keeps_bound = False

    def forward(self, ctx: Context, *, data: np.ndarray, bound: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns logarithms, signs and zeros."""
        logs = np.empty(data.size, np.float64)
        each(lambda a, b: _logs(data[a:b].astype(np.float64), logs[a:b], _LOG), shares(data.size, ctx.threads, 1 << 14), ctx.threads)
        own = math.log2(1 + float(bound[0]))
        limits = bound_port(max(own - GUARD, own / 2), 1100.0)
        return {"data": logs, "bound": limits, "signs": _bits(np.signbit(data)), "zeros": _bits(data == 0)}

    def inverse(self, ctx: Context, *, data: np.ndarray, signs: np.ndarray, zeros: np.ndarray, **_: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the values."""
        out = np.empty(data.size, np.float64)
        each(lambda a, b: _powers(data[a:b], out[a:b], _EXP), shares(data.size, ctx.threads, 1 << 14), ctx.threads)
        with np.errstate(over="ignore", under="ignore"):
            values = out.astype(ctx.dtype)
        values[_unbits(zeros, data.size)] = 0
        np.negative(values, out=values, where=_unbits(signs, data.size))
        return {"data": values}


def _bits(where: np.ndarray) -> np.ndarray:
    return np.packbits(where, bitorder="little") if where.any() else np.zeros(0, np.uint8)


def _unbits(bits: np.ndarray, count: int) -> np.ndarray:
    if not bits.size:
        return np.zeros(count, bool)
    if bits.dtype != np.uint8 or bits.size != -(-count // 8):
        raise InputError(f"bitmap: found {bits.size} bytes; expected {-(-count // 8)}")
    return np.unpackbits(bits, count=count, bitorder="little").astype(bool)


@loop
def _logs(x, out, terms):
    # |x| = m·2^e with m in [√½, √2); log2 m = (2/ln 2)·artanh((m − 1)/(m + 1)) as an odd series.
    for i in range(x.size):
        value = abs(x[i])
        if not (0.0 < value < np.inf):
            out[i] = 0.0
            continue
        m, e = math.frexp(value)
        if m < 0.7071067811865476:
            m *= 2.0
            e -= 1
        t = (m - 1.0) / (m + 1.0)
        square = t * t
        total = 0.0
        for k in range(terms.size - 1, -1, -1):
            total = total * square + terms[k]
        out[i] = e + t * total


@loop
def _powers(y, out, terms):
    # 2^y = 2^n·e^(f ln 2), |f| ≤ ½, by Taylor's series.
    for i in range(y.size):
        value = min(max(y[i], -1100.0), 1100.0) if y[i] == y[i] else 0.0
        n = np.rint(value)
        f = value - n
        total = 0.0
        for k in range(terms.size - 1, -1, -1):
            total = total * f + terms[k]
        out[i] = math.ldexp(total, int(n))
