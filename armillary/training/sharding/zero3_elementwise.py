"""ZeRO-3: every parameter is flattened and divided by elements among the ranks.

Padding is at most N − 1 elements per parameter, but rows and blocks are cut, and the collective of a module interleaves its parameters:
shares are copied into the buffer that is gathered, gathered parameters are joined out of it, and gradients are copied into the buffer that
is reduced.

ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020 (DeepSpeed's stage 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .layouts.bucket import Bucket, Interleaved
from .layouts.sharding import Sharding
from .ragged.granularity import Weight


@dataclass(frozen=True)
class Zero3Elementwise(Sharding):
    """An even share of the elements of every parameter, and interleaved copies."""

    def buckets(self, weights: Sequence[Weight], n: int, align: int) -> list[Bucket]:
        """One bucket in which every weight is divided by elements."""
        return [Interleaved.of(weights, n, [None] * len(weights), align)]
