"""Inner products modulo the order of the group, shared out over threads: the larger part of what a client pays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.trust.outsourcing.group.bases import read_only
from armillary.trust.outsourcing.group.scalars import inner_into

Words = npt.NDArray[np.uint64]

#: Terms below which further threads cost more than they bring.
WORTH_A_THREAD = 4096


def inner_product(x: Words, y: Words, *, start: Words | None = None, threads: int = 1) -> Words:
    """Σ xᵢ·yᵢ + start modulo q, in four words."""
    parts = max(1, min(threads, len(x) // WORTH_A_THREAD))
    edges = [len(x) * k // parts for k in range(parts + 1)]
    sums: Any = np.zeros((parts, 4), np.uint64)
    begun: Any = np.zeros((parts, 4), np.uint64)
    if start is not None:
        begun[0] = start

    def work(k: int) -> None:
        inner_into(x[edges[k] : edges[k + 1]], y[edges[k] : edges[k + 1]], begun[k], sums[k])

    if parts == 1:
        work(0)
        return sums[0]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(work, range(parts)))
    ones: Any = np.zeros((parts, 4), np.uint64)
    ones[:, 0] = 1
    return inner_product(read_only(sums), read_only(ones))
