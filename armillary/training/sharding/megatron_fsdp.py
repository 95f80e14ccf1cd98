"""Megatron-FSDP: a flat buffer on a grid of rows, so that shards hold whole rows.

The parameters of a module are sorted into buckets of equal row length c (a parameter with shorter rows joins if c is a multiple of them and
its size a multiple of c). In a bucket every parameter begins on the grid of c elements, small ones fill the gaps, and the bucket is padded
to a multiple of N·c. Parameters and gradients are views of two buffers that serve all modules in turn, so nothing is copied. Rows stay
whole, but blocks of several rows are cut.

NVIDIA's Megatron-FSDP, 2025 (megatron-core, `param_and_grad_buffer`, with `--fsdp-double-buffer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .layouts.bucket import Bucket, Flat
from .layouts.sharding import Sharding
from .ragged.granularity import Weight


@dataclass(frozen=True)
class MegatronFsdp(Sharding):
    """Buckets of one row length on a grid of rows."""

    views: ClassVar[bool] = True
    gradient_views: ClassVar[bool] = True
    pooled: ClassVar[bool] = True

    def buckets(self, weights: Sequence[Weight], n: int, align: int) -> list[Bucket]:
        """One bucket per row length."""
        left = sorted(weights, key=_row, reverse=True)
        found: list[Bucket] = []
        while left:
            grid = _row(left[0])
            same = [w for w in left if _row(w) == grid or (grid % _row(w) == 0 and w.size % grid == 0)]
            left = [w for w in left if w not in same]
            offsets, end = _on_grid(same, grid)
            # The shard holds whole rows, and is aligned where rows are; a bucket of vectors alone is aligned by itself.
            step = grid if grid > 1 else align
            found.append(Flat(tuple(same), n, -(-end // (n * step)) * step, tuple(offsets)))
        return found


def _row(weight: Weight) -> int:
    """Elements per row. Fused experts count as the stack of matrices that Megatron keeps apart, or they would be padded N-fold."""
    return weight.columns if weight.matrix else 1


def _on_grid(weights: Sequence[Weight], grid: int) -> tuple[list[int], int]:
    """The offset of each weight, and the end. Weights of at least one grid cell begin on the grid, and the others fill gaps."""
    offsets = [0] * len(weights)
    small = sorted((i for i, w in enumerate(weights) if w.size < grid), key=lambda i: -weights[i].size)
    at = 0
    for i, weight in enumerate(weights):
        if weight.size < grid:
            continue
        offsets[i] = at
        end = at + weight.size
        at = -(-end // grid) * grid
        small, _ = _fill(weights, offsets, small, end, at)
    while small:
        small, _ = _fill(weights, offsets, small, at, at + grid)
        at += grid
    return offsets, at


def _fill(weights: Sequence[Weight], offsets: list[int], small: list[int], start: int, stop: int) -> tuple[list[int], int]:
    """Put small weights into a gap, the largest first; returns those that are left, and where the gap now begins."""
    left = []
    for i in small:
        if start + weights[i].size <= stop:
            offsets[i] = start
            start += weights[i].size
        else:
            left.append(i)
    return left, start
