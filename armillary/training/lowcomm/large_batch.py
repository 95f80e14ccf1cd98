"""Large batches: the cheap way to DiLoCo's traffic, in which every worker adds up the gradients of H steps before they are averaged.

The optimizer then makes H times fewer steps, with gradients of H times as many tokens, and a learning rate that grows with the square
root of H, as is usual for Adam. The rate follows the same schedule over inner steps, as its mean over those that an
update stands for. Buckets travel behind the last backward pass, as in data parallelism.

One weird trick for parallelizing convolutional neural networks, arXiv 1404.5997, 2014 (square-root scaling); Accurate, Large Minibatch
SGD, arXiv 1706.02677, 2017 (linear scaling).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from armillary.arena import parameter

from .ddp import GradientAverage
from .workers.scheme import ONE_STAGE, Scheme, Synchronised

if TYPE_CHECKING:
    from armillary.comm import Communicator

    from .workers.inner import Inner


@dataclass(frozen=True)
class LargeBatch(Synchronised):
    """Data parallelism that accumulates gradients over H steps."""

    takes: ClassVar[frozenset[str]] = ONE_STAGE

    scaling: Literal["constant", "sqrt", "linear"] = parameter("sqrt", "the factor on the learning rate: 1, √H or H")
    bits: Literal[32, 16] = parameter(32, "bits per element of the gradients on the wire: float32 or bfloat16")

    def scheme(self, stage: str, inner: Inner, every: int, ranks: Communicator) -> Scheme:
        """An exchange after every `every` steps."""
        scale = {"constant": 1.0, "sqrt": math.sqrt(every), "linear": float(every)}[self.scaling]
        return GradientAverage(inner, ranks, accumulate=every, scale=scale, bits=self.bits)
