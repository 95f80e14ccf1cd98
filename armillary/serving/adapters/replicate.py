"""Replicate lets every GPU serve every adapter, and sends a request where the fewest wait.

A load balancer in front of equal engines does this, after the join-the-shortest-queue rule (Winston, 1977).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .engine.gpu_engine import GpuEngine
from .placing.placement import Gpu, Placement, Placer, resident, start_gpus
from .workload import AdapterTable


@dataclass(frozen=True)
class Replicate(Placer):
    """Puts all adapters on every GPU, with a router that counts tokens."""

    slots: int = parameter(32, "slots on each GPU, as far as memory goes", range=(1, 4096))

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Returns equal engines."""
        on = engine or GpuEngine()
        every = range(len(adapters))
        one = resident(adapters, [list(every)], on, self.slots)[0]
        n = start_gpus(adapters, on, min_gpus)
        return Placement(adapters, (Gpu(one.adapters, one.slots, one.max_rank, tuple(1.0 / n for _ in every)),) * n, on, shared=True)
