"""Data parallelism: every rank holds all parameters, gradients and optimizer state, and the gradients are summed.

Gradients are accumulated in the buckets that are summed (PyTorch's `gradient_as_bucket_view`), and a bucket is summed while the backward
pass goes on. Nothing is cut, gathered or padded, and nothing is saved.

PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .layouts.bucket import Bucket, Whole
from .layouts.sharding import Sharding
from .ragged.granularity import Weight


@dataclass(frozen=True)
class Ddp(Sharding):
    """Copies of everything, with gradients as views of the buckets."""

    views: ClassVar[bool] = True
    gradient_views: ClassVar[bool] = True
    replicated: ClassVar[bool] = True

    def buckets(self, weights: Sequence[Weight], n: int, align: int) -> list[Bucket]:
        """One bucket per module."""
        return [Whole.of(weights, n)]
