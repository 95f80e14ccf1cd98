"""dLoRA spreads adapters so that each meets the shortest queue, and places them again when the load has changed.

An adapter goes where the expected queue including it is shortest: ρ²/(1 − ρ) requests for a GPU at utilisation ρ (M/M/1), where a GPU's
capacity falls with the number of distinct adapters that it must batch. In every period adapters are placed again by the rates of the
previous one, on the same GPUs.

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
    """Places adapters by the shortest expected queue, again every `period_s`."""

    period_s: float = parameter(300.0, "seconds after which adapters are placed again", range=(1.0, 1e6))
    slots: int = parameter(0, "the most slots on a GPU; 0 gives each adapter one, as far as memory allows", range=(0, 4096))

    def place(self, adapters: AdapterTable, *, engine: GpuEngine | None = None, min_gpus: int = 1) -> Placement:
        """Places each adapter."""
        on = engine or GpuEngine()
        return self._spread(adapters, adapters.token_rate, on, start_gpus(adapters, on, min_gpus))

    def again(self, before: Placement, seen_rate: npt.NDArray[np.float64]) -> Placement:
        """Places the adapters again on the same GPUs, for the requests per second that were seen of each."""
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
        # Engines are started once, with slots for the largest rank of all, since any adapter may come later.
        return Placement(adapters, resident(adapters, groups, on, self.slots, int(adapters.rank.max())), on)
