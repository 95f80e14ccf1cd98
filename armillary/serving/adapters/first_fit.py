"""First fit gives an engine adapters as long as each has a slot of its own in memory, and ignores their load.

An operator does this who reads `--max-loras` as the number of adapters. The rule is first-fit bin packing (Johnson, 1974).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.errors import InputError

from .engine.gpu_engine import GpuEngine
from .placing.placement import Placement, Placer, resident
from .workload import AdapterTable


@dataclass(frozen=True)
class FirstFit(Placer):
    """Fills GPUs in the order of the table and by memory alone."""

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Places each adapter; if more GPUs are required, each takes fewer adapters."""
        on = engine or GpuEngine()
        most = on.most_slots(int(adapters.rank.max()))
        if not most:
            raise InputError(f"{on.name} on {on.device}: not one slot of rank {int(adapters.rank.max())} fits")
        each = max(1, min(most, -(-len(adapters) // max(1, min_gpus))))
        groups = [list(range(i, min(i + each, len(adapters)))) for i in range(0, len(adapters), each)]
        return Placement(adapters, resident(adapters, groups, on), on)
