"""dLoRA's placement: spread adapters so that the queue that each will meet is shortest, and place again when the load has changed.

An adapter goes where the expected queue is shortest once it is there: ρ²/(1 − ρ) requests for a GPU at utilisation ρ (M/M/1), where a
GPU's capacity falls with the distinct adapters that it must batch. Every period the rates of the last one are placed anew, on the
same GPUs.

Wu et al., dLoRA: Dynamically Orchestrating Requests and Adapters for LoRA LLM Serving, OSDI 2024; its merging of adapters into the
weights and the migration of single requests are left out (our design: the expected queue by M/M/1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.parameters import parameter

from .engine.gpu_engine import GpuEngine
from .placing.placement import Placement, Placer, resident, start_gpus
from .workload import AdapterTable


@dataclass(frozen=True)
class Dlora(Placer):
    """Shortest expected queue, placed anew every `period_s`."""

    period_s: float = parameter(300.0, "seconds after which adapters are placed anew", range=(1.0, 1e6))
    slots: int = parameter(0, "most slots on a GPU; 0: one for each adapter, as far as memory goes", range=(0, 4096))

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Where each adapter goes."""
        on = engine or GpuEngine()
        return self._spread(adapters, adapters.token_rate, on, start_gpus(adapters, on, min_gpus))

    def again(self, before: Placement, seen_rate: npt.NDArray[np.float64]) -> Placement:
        """The same GPUs, adapters placed anew for the requests per second that were seen of each."""
        table = before.adapters
        tokens = seen_rate * (table.prompt + table.output)
        return self._spread(table, tokens, before.engine, len(before))

    def _spread(self, adapters: AdapterTable, tokens: npt.NDArray[np.float64], on: GpuEngine, n: int) -> Placement:
        m, peak = on.twin_model(), on.peak_tokens_per_s()
        load, count = np.zeros(n), np.zeros(n)
        groups: list[list[int]] = [[] for _ in range(n)]
        for a in sorted(range(len(adapters)), key=lambda a: (-tokens[a], a)):
            capacity = peak * m.c0 / (m.c0 + m.c2 * np.minimum(count, 64))
            rho = (load + tokens[a]) / capacity
            queue = np.where(rho < 1, rho * rho / np.maximum(1e-9, 1 - rho), 1e6 * rho)
            g = int(np.lexsort((count, queue))[0])
            groups[g].append(a)
            load[g] += tokens[a]
            count[g] += 1
        # Engines are started once: slots for the largest rank of all, since any adapter may come later.
        return Placement(adapters, resident(adapters, groups, on, self.slots, int(adapters.rank.max())), on)
