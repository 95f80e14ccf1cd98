"""FSDP2: every parameter is divided by rows among the ranks, each with its own padding.

A share consists of whole rows, so that a parameter stays a tensor of its own, but the collective of a module interleaves its parameters:
shares are copied into the buffer that is gathered, gathered parameters are copied out of it, and gradients are copied into the buffer that
is reduced. Rows are padded to a multiple of N. As a user would (`shard_placement_fn`), each parameter is divided along the dimension that
pads least, since 128 fused experts on 1,024 ranks would be padded eightfold along the first; another dimension than the first costs one
more copy.

PyTorch's `torch.distributed.fsdp.fully_shard`, 2024; TorchTitan describes it (arXiv 2410.06511).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from armillary.arena import parameter

from .layouts.bucket import Bucket, Interleaved
from .layouts.sharding import Sharding
from .ragged.granularity import Weight


@dataclass(frozen=True)
class Fsdp2Rowwise(Sharding):
    """`Shard(dim)` per parameter, and interleaved copies."""

    choose: bool = parameter(True, "whether each parameter is divided along the dimension that pads least, rather than the first")

    def buckets(self, weights: Sequence[Weight], n: int, align: int) -> list[Bucket]:
        """One bucket in which every weight is divided by itself."""
        return [Interleaved.of(weights, n, [self._dim(weight, n) for weight in weights], align)]

    def on_ranks(self) -> Fsdp2Rowwise:
        """Rows only, because the optimizers of the runtime work on contiguous shares."""
        return replace(self, choose=False)

    def _dim(self, weight: Weight, n: int) -> int:
        if not self.choose:
            return 0

        def padded(dim: int) -> int:
            return -(-weight.shape[dim] // n) * n * (weight.size // weight.shape[dim])

        # The first dimension wins ties, and is kept unless another one saves more than a hundredth.
        best = min(range(len(weight.shape)), key=padded)
        return 0 if padded(0) <= 1.01 * padded(best) else best
