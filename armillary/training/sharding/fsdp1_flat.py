"""FSDP1: the parameters of a module are one flat parameter, which is cut into N equal pieces wherever the cuts fall.

Gathered parameters are views of the flat one, so gathering copies nothing. The gradients of the views are copied into the flat gradient, as
autograd does for a tensor that was split. Only the end is padded. Blocks are cut, so that block-wise state needs an exchange.

PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, VLDB 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .layouts.bucket import Bucket, Flat
from .layouts.sharding import Sharding
from .ragged.granularity import Weight
from .ragged.planner import plan_weights


@dataclass(frozen=True)
class Fsdp1Flat(Sharding):
    """One flat parameter per module, cut anywhere."""

    views: ClassVar[bool] = True

    def buckets(self, weights: Sequence[Weight], n: int, align: int) -> list[Bucket]:
        """The weights one after the other."""
        return [Flat.of(plan_weights(weights, n, align=align, order="given"))]
