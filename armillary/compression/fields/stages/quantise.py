"""Uniform quantisation with the decoder's own arithmetic, which both predictors and the fused rivals share.

q = rint(x · 1/(2ε)) in float64, x' = dtype(2ε · q). A value whose x' is further than ε away, one that is not finite and one whose q is
out of range is a *violator*: its bits are stored as they are. No fused multiply-add and no fast-math, so that every machine gives the
same x'.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

#: |q| stays below these, which 32 and 64 bits hold with room for the sign; residuals may wrap around, and sums wrap back.
NARROW, WIDE = 2.0**30, 2.0**62


def wide(bound: np.ndarray) -> bool:
    """Says whether quantised values of this chunk need 64 bits; `bound` is the port of `range`."""
    return float(bound[1]) != 0.0


@loop
def quantise_row(x, q, eps, inverse, limit):
    """Quantises a row of x and returns whether it has violators. Violators out of range get q = 0, and others keep theirs."""
    width = 2.0 * eps
    bad = False
    for i in range(x.size):
        value = np.float64(x[i])
        r = np.rint(value * inverse)
        inside = abs(r) < limit
        r = r if inside else 0.0
        q[i] = q.dtype.type(r)
        back = np.float64(x.dtype.type(width * r))
        bad |= not (inside & (abs(value - back) <= eps))
    return bad


@loop
def collect_violators(x, first, index, raw, found, eps, inverse, limit):
    """Appends places (from `first` on) and bits of the violators of a row at `found`; returns how many there are then.

    It looks at 64 values at once, and one by one only where there is a violator: at tight bounds few values are violators, but few rows
    have none.
    """
    width = 2.0 * eps
    for start in range(0, x.size, 64):
        stop = min(x.size, start + 64)
        part = x[start:stop]
        bad = False
        for i in range(part.size):
            value = np.float64(part[i])
            r = np.rint(value * inverse)
            bad |= not ((abs(r) < limit) & (abs(value - np.float64(x.dtype.type(width * r))) <= eps))
        if not bad:
            continue
        for i in range(part.size):
            value = np.float64(part[i])
            r = np.rint(value * inverse)
            if not ((abs(r) < limit) & (abs(value - np.float64(x.dtype.type(width * r))) <= eps)):
                index[found] = np.uint32(first + start + i)
                raw[found] = part[i]
                found += 1
    return found


@loop
def room(array, used, more):
    """Returns `array` with room for `more` items after `used`; it is doubled where it has not enough."""
    if used + more <= array.size:
        return array
    grown = np.empty(max(2 * array.size, used + more), array.dtype)
    grown[:used] = array[:used]
    return grown
