"""Round robin: equal counts for all, whatever they weigh. The oldest rule of sharing.

Nagle, On packet switches with infinite storage, 1985. Of adapters, each GPU gets every n-th; of image requests, each worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .gpu_engine import GpuEngine
from .image_policy import CachingPolicy, ImagePolicy
from .placement import Placement, Placer, resident, start_gpus
from .workload import AdapterTable


@dataclass(frozen=True)
class RoundRobin(Placer):
    """Adapter i goes to GPU i modulo n; image request i to worker i modulo the workers."""

    takes = frozenset({"llm", "image"})
    slots: int = field(
        default=0, metadata={"doc": "most slots on a GPU; 0: one for each adapter, as far as memory goes", "range": (0, 4096)}
    )

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Where each adapter goes."""
        on = engine or GpuEngine()
        n = start_gpus(adapters, on, min_gpus)
        groups = [list(range(g, len(adapters), n)) for g in range(n)]
        return Placement(adapters, resident(adapters, groups, on, self.slots), on)

    def policy(self) -> ImagePolicy:
        """The image kind: requests to workers in turn, LRU caches."""
        return CachingPolicy("round-robin", "lru")
