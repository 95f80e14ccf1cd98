"""The seconds of a layer as a polynomial of its chunk.

T_F = a·Σ s(c + s/2) + b·Σ s + g, and T_B = 2.5·(the a part) + 2·(the b part) + g.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..simulation.simulator import FloatArray

if TYPE_CHECKING:
    from .work import Chunk

#: Slices and contexts, in tokens, to which the polynomial is fitted.
TOKENS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
CONTEXTS = (0, 8192, 32768, 131072)


@dataclass(frozen=True)
class Polynomial:
    """Seconds per pair of tokens in attention (a), per token (b), and per layer (g)."""

    a: float
    b: float
    g: float

    def of(self, tokens: float, context: float = 0.0) -> float:
        """Forward seconds of one slice."""
        return self.a * tokens * (context + tokens / 2) + self.b * tokens + self.g

    def attention(self, chunks: Sequence[Chunk]) -> FloatArray:
        """The a part of every chunk."""
        return self.a * np.array([sum(s * (c + s / 2) for s, c in chunk.segments) for chunk in chunks])

    def seconds(self, chunks: Sequence[Chunk]) -> FloatArray:
        """Forward seconds of every chunk."""
        return self.attention(chunks) + self.b * np.array([float(chunk.tokens) for chunk in chunks]) + self.g

    def backward_seconds(self, chunks: Sequence[Chunk]) -> FloatArray:
        """Backward seconds of every chunk."""
        return 2.5 * self.attention(chunks) + 2 * self.b * np.array([float(chunk.tokens) for chunk in chunks]) + self.g

    @staticmethod
    def fitted(seconds: Callable[[Sequence[Any]], tuple[Any, ...]]) -> Polynomial:
        """The least relative squares over a grid of slices and contexts; `seconds` gives the forward pass first."""
        from .work import Chunk

        grid = [Chunk(((0, s),), c) for s in TOKENS for c in CONTEXTS]
        times = np.asarray(seconds(grid)[0], float)
        rows = [(s * (c + s / 2) / t, s / t, 1 / t) for (s, c), t in zip(((s, c) for s in TOKENS for c in CONTEXTS), times)]
        return Polynomial(*least_squares(rows, [1.0] * len(rows)))


def least_squares(rows: Sequence[tuple[float, float, float]], targets: Sequence[float]) -> tuple[float, float, float]:
    """The least squares of three coefficients of at least 0, by the normal equations in exact sums: equal bits on every machine.

    A coefficient that would be negative is left out.
    """
    size = [math.sqrt(math.fsum(row[i] ** 2 for row in rows)) or 1.0 for i in range(3)]
    best: tuple[float, tuple[float, float, float]] | None = None
    for used in ((0, 1, 2), (0, 1), (1, 2), (0, 2), (1,), (0,), (2,)):
        table = [[math.fsum(row[i] * row[j] / (size[i] * size[j]) for row in rows) for j in used] for i in used]
        right = [math.fsum(row[i] * y / size[i] for row, y in zip(rows, targets)) for i in used]
        found = _solved(table, right)
        if found is None or min(found) < 0:
            continue
        values = [0.0, 0.0, 0.0]
        for i, x in zip(used, found):
            values[i] = x / size[i]
        error = math.fsum((math.fsum(r * v for r, v in zip(row, values)) - y) ** 2 for row, y in zip(rows, targets))
        if best is None or error < best[0]:
            best = error, (values[0], values[1], values[2])
    return best[1] if best else (0.0, 0.0, 0.0)


def _solved(table: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with pivots; None for a singular system."""
    n = len(right)
    rows = [[*row, value] for row, value in zip(table, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        if abs(rows[pivot][i]) < 1e-14:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(n):
            if k != i:
                share = rows[k][i] / rows[i][i]
                rows[k] = [x - share * y for x, y in zip(rows[k], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]
