"""ZeRO-Infinity keeps parameters in the host, fetches them a bucket ahead, and releases them after use.

The host keeps all parameters in pinned memory and Adam's states in memory, or, where those do not fit, all states on the drive. DeepSpeed's
defaults decide what is on the GPU: up to 5·10⁷ elements are prefetched per operation, at most 10⁹ are live, small tensors stay, and a
tensor that is used again before 10⁹ elements were touched stays too, so the turn from forward to backward hits. PyTorch's allocator keeps
freed blocks, so a fetch finds memory of its size at once (`pooled`).

ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep Learning, SC 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.parameters import parameter

from .planning.buckets import bucketed
from .planning.states import all_or_nothing
from .simulation.machine import MALLOC_S
from .simulation.schedule import GPU, HOST, Schedule
from .workload import OffloadWork


@dataclass(frozen=True)
class ZeroInfinity(Technique):
    """Fetches a bucket of parameters ahead and releases them after use. ZeRO-Infinity, SC 2021."""

    prefetch_bucket_size: float = parameter(5e7, "elements that are prefetched at an operation", range=(0, 1e12))
    param_persistence_threshold: float = parameter(1e5, "tensors with fewer elements stay on the GPU", range=(0, 1e12))
    max_live_parameters: float = parameter(1e9, "most elements on the GPU at once", range=(1, 1e12))
    max_reuse_distance: float = parameter(1e9, "a tensor that is used again within this many elements stays", range=(0, 1e12))
    pooled: bool = parameter(True, "whether the allocator reuses freed blocks; otherwise every fetch pays for cudaMalloc")

    def schedule(self, work: OffloadWork) -> Schedule:
        """The moves of all iterations."""
        small = work.elements < self.param_persistence_threshold
        room = work.capacity - float(work.size[small].sum())
        if room < work.widest:
            raise NotForThisCase("the GPU does not hold the parameters of one operation beside the activations")
        # Three operations may overlap beyond the limit, because DeepSpeed counts whole tensors.
        live = min(self.max_live_parameters, max((room - 3 * work.widest) / 2, 0.0))
        streamed, host = all_or_nothing(work)
        moves = bucketed(
            work, bucket=self.prefetch_bucket_size, live=live, reuse=min(self.max_reuse_distance, live),
            persistent=self.param_persistence_threshold, malloc_s=0.0 if self.pooled else MALLOC_S,
        )  # fmt: skip
        home = np.tile(np.where(small, GPU, HOST).astype(np.int8), (work.iterations, 1))
        return Schedule(moves, small, home, streamed, host, host)
