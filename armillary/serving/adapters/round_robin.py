"""Round robin gives everyone the same number, whatever the load of each; it is the oldest rule of sharing.

Nagle, On packet switches with infinite storage, 1985. Each GPU gets every n-th adapter, and each worker every n-th image request.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .engine.gpu_engine import GpuEngine
from .images.policy import CachingPolicy, ImagePolicy
from .placing.placement import Placement, Placer, resident, start_gpus
from .workload import AdapterTable


@dataclass(frozen=True)
class RoundRobin(Placer):
    """Adapter i goes to GPU i modulo n, and image request i to worker i modulo the number of workers."""

    takes = frozenset({"llm", "image"})
    slots: int = parameter(0, "the most slots on a GPU; 0 gives each adapter one, as far as memory allows", range=(0, 4096))

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Places each adapter."""
        on = engine or GpuEngine()
        n = start_gpus(adapters, on, min_gpus)
        groups = [list(range(g, len(adapters), n)) for g in range(n)]
        return Placement(adapters, resident(adapters, groups, on, self.slots), on)

    def policy(self) -> ImagePolicy:
        """Returns the policy for images, which sends requests to workers in turn and has LRU caches."""
        return CachingPolicy("round-robin", "lru")
