"""Balanced takes adapters by decreasing token rate and gives each to the GPU that has the least so far.

The rule is longest processing time first (LPT). Graham, Bounds on multiprocessing timing anomalies, 1969.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from .engine.gpu_engine import GpuEngine
from .placing.placement import Placement, Placer, least_loaded, resident, start_gpus
from .workload import AdapterTable


@dataclass(frozen=True)
class Balanced(Placer):
    """Balances token rates over the GPUs."""

    slots: int = parameter(0, "the most slots on a GPU; 0 gives each adapter one, as far as memory allows", range=(0, 4096))

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Places each adapter."""
        on = engine or GpuEngine()
        order = np.argsort(-adapters.token_rate, kind="stable")
        groups = least_loaded(adapters.token_rate, order, start_gpus(adapters, on, min_gpus))
        return Placement(adapters, resident(adapters, groups, on, self.slots), on)
