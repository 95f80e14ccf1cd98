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
    """Equal token rates on every GPU."""

    slots: int = parameter(0, "most slots on a GPU; 0: one for each adapter, as far as memory goes", range=(0, 4096))

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Where each adapter goes."""
        on = engine or GpuEngine()
        order = np.argsort(-adapters.token_rate, kind="stable")
        groups = least_loaded(adapters.token_rate, order, start_gpus(adapters, on, min_gpus))
        return Placement(adapters, resident(adapters, groups, on, self.slots), on)
