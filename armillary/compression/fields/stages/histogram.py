"""The stages `histogram` and `topk-histogram` count how often each code occurs, for the entropy coder.

Both give the same counts (int64, one for each value up to the largest code). `topk-histogram` (after cuSZ-i) counts the k codes around
the centre in small tables and four centre codes by one comparison, and spills only the rest into the large table, which is faster where
one code dominates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop
from armillary.parameters import parameter

from .slabs import each, shares
from .stage import Context, Port, Stage


@dataclass(frozen=True)
class Histogram(Stage):
    """Counts codes in four tables at once, so that equal neighbours do not wait for each other."""

    name = "histogram"
    inputs = (Port("codes", "codes"),)
    outputs = (Port("counts", "counts"),)
    analysis = True

    def forward(self, ctx: Context, *, codes: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Counts by code."""
        found = each(lambda a, b: _count(codes[a:b]), shares(codes.size, ctx.threads, 1 << 15), ctx.threads)
        return {"counts": _total(found)}


@dataclass(frozen=True)
class TopkHistogram(Stage):
    """Counts the k codes around the centre apart, the rest by table."""

    k: int = parameter(16, "codes around the centre that are counted apart", range=(1, 64))
    centre: int = parameter(512, "the code of residual 0", range=(0, 65535))

    name = "topk-histogram"
    inputs = (Port("codes", "codes"),)
    outputs = (Port("counts", "counts"),)
    analysis = True

    def forward(self, ctx: Context, *, codes: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Counts by code."""
        first = min(max(0, self.centre - self.k // 2), 65536 - self.k)
        found = each(lambda a, b: _count_around(codes[a:b], first, self.k), shares(codes.size, ctx.threads, 1 << 15), ctx.threads)
        return {"counts": _total(found)}


def _total(found: list[np.ndarray]) -> np.ndarray:
    counts = np.stack(found).sum(axis=0, dtype=np.int64).reshape(-1) if found else np.zeros(1, np.int64)
    used = np.flatnonzero(counts)
    return counts[: used[-1] + 1] if used.size else counts[:1]


@loop
def _count(codes):
    tables = np.zeros((4, 65536), np.uint32)
    whole = codes.size // 4 * 4
    for i in range(0, whole, 4):
        tables[0, codes[i]] += np.uint32(1)
        tables[1, codes[i + 1]] += np.uint32(1)
        tables[2, codes[i + 2]] += np.uint32(1)
        tables[3, codes[i + 3]] += np.uint32(1)
    for i in range(whole, codes.size):
        tables[0, codes[i]] += np.uint32(1)
    counts = np.zeros(65536, np.int64)
    for t in range(4):
        for i in range(65536):
            counts[i] += tables[t, i]
    return counts


@loop
def _count_around(codes, first, k):
    # Four codes at a time are counted by one comparison if all are the middle one, in four small tables near it, or in the large one.
    counts = np.zeros(65536, np.int64)
    near = np.zeros(4 * k, np.int64)
    middle, low, high = np.int64(first + k // 2), np.int64(first), np.int64(first + k)
    whole = codes.size // 4
    alike = 0
    for i in range(0, 4 * whole, 4):
        a, b, c, d = np.int64(codes[i]), np.int64(codes[i + 1]), np.int64(codes[i + 2]), np.int64(codes[i + 3])
        if (a ^ middle) | (b ^ middle) | (c ^ middle) | (d ^ middle) == 0:
            alike += 4
        elif min(min(a, b), min(c, d)) >= low and max(max(a, b), max(c, d)) < high:
            near[a - low] += 1
            near[b - low + k] += 1
            near[c - low + 2 * k] += 1
            near[d - low + 3 * k] += 1
        else:
            counts[a] += 1
            counts[b] += 1
            counts[c] += 1
            counts[d] += 1
    for i in range(4 * whole, codes.size):
        counts[codes[i]] += 1
    for j in range(k):
        counts[first + j] += near[j] + near[j + k] + near[j + 2 * k] + near[j + 3 * k]
    counts[first + k // 2] += alike
    return counts
