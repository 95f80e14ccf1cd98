"""Replicate: every GPU may serve every adapter, and a request goes where least is waiting.

What a load balancer before equal engines does; after the join-the-shortest-queue rule (Winston, 1977).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .gpu_engine import GpuEngine
from .placement import Gpu, Placement, Placer, resident, start_gpus
from .workload import AdapterTable


@dataclass(frozen=True)
class Replicate(Placer):
    """All adapters everywhere; the router counts tokens."""

    slots: int = field(default=32, metadata={"doc": "slots on each GPU, as far as memory goes", "range": (1, 4096)})

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Equal engines."""
        on = engine or GpuEngine()
        every = range(len(adapters))
        one = resident(adapters, [list(every)], on, self.slots)[0]
        n = start_gpus(adapters, on, min_gpus)
        return Placement(adapters, (Gpu(one.adapters, one.slots, one.max_rank, tuple(1.0 / n for _ in every)),) * n, on, shared=True)
