"""Search in cumulative shares from a table of first guesses; apart, because it brings the compiler."""

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel

from .checks import Floats, Ints


def guided_search(below: Floats, u: Floats) -> Ints:
    """`np.searchsorted(below, u, "right")`, at most the last place, for many numbers u in [0, 1)."""
    n = len(below)
    guide = np.searchsorted(below, np.arange(n) / n, side="right").astype(np.int64)
    out = np.empty(len(u), np.int64)
    _search(u, below, guide, out)
    return out


@kernel
def _search(u, below, guide, out):  # type: ignore[no-untyped-def]
    # guide[⌊u·n⌋] is the place of ⌊u·n⌋/n, on average less than one short. The product may be rounded up, hence the steps back.
    n = len(guide)
    for i in range(len(u)):
        at = min(guide[min(int(u[i] * n), n - 1)], n - 1)
        while at < n - 1 and below[at] <= u[i]:
            at += 1
        while at > 0 and below[at - 1] > u[i]:
            at -= 1
        out[i] = at
