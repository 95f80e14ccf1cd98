"""Rank-aware puts adapters of equal rank on the same GPU, so that slots need not be padded to a larger rank that a few adapters have.

It follows the observation of Li et al., CaraServe: CPU-Assisted and Rank-Aware LoRA Serving, 2024, that a batch costs as much as its
largest rank. They route requests by rank, whereas this technique places adapters by rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from .engine.gpu_engine import GpuEngine
from .placing.placement import Placement, Placer, least_loaded, resident, start_gpus
from .workload import AdapterTable


@dataclass(frozen=True)
class RankAware(Placer):
    """GPUs are given to ranks in proportion to their token rates; a rank too small for a GPU of its own joins the next larger one."""

    slots: int = parameter(0, "the most slots on a GPU; 0 gives each adapter one, as far as memory allows", range=(0, 4096))

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Places each adapter."""
        on = engine or GpuEngine()
        n = start_gpus(adapters, on, min_gpus)
        load = adapters.token_rate
        total = float(load.sum()) or 1.0
        ranks = sorted({int(r) for r in adapters.rank})
        groups: list[list[int]] = []
        carried: list[int] = []
        left = n
        for i, rank in enumerate(ranks):
            mine = carried + [int(a) for a in np.flatnonzero(adapters.rank == rank)]
            last = i == len(ranks) - 1
            want = left if last else min(left - 1, round(n * float(load[mine].sum()) / total))
            if want < 1:
                carried = mine
                continue
            order = sorted(mine, key=lambda a: (-load[a], a))
            groups += least_loaded(load, order, want)
            carried, left = [], left - want
        return Placement(adapters, resident(adapters, [g for g in groups if g], on, self.slots), on)
