"""Programs of ranks for the tests, found by name where ranks are processes."""

from __future__ import annotations

import numpy as np

from armillary.numerics.qr import matrix, tall_qr


def whole(family, m, n, seed=0):
    return matrix(family, m, n, np.random.default_rng(seed))


def factored(comm, a, method="lu-cholqr2", starts=None, parameters=None):
    """Returns Q of this rank, R, the method taken and what was sent; rows are dealt evenly, or from `starts[rank]` on."""
    if starts is None:
        mine = comm.local_range(len(a))
        block = a[mine.start : mine.stop]
    else:
        bounds = [*starts, len(a)]
        block = a[bounds[comm.rank] : bounds[comm.rank + 1]]
    q, r, info = tall_qr(block, comm, method, **(parameters or {}))
    return q, r, info.method, info.fallback, info.collectives, info.bytes


def triangles(comm, family, m, n, methods):
    return [factored(comm, whole(family, m, n), method)[1] for method in methods]
