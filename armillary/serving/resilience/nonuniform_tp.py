"""Tensor parallelism over any number of GPUs deals heads out in turn, so the first H mod G GPUs have one more in every layer.

Their memory bounds the cache, and every layer waits for them. After a loss the survivors fetch the weights that they lack, go on in their
own processes, and compute all keys and values again. This is the first step towards FailSafe (arXiv 2511.14116, 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

from .simulation.elastic import Elastic
from .simulation.service import Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class NonuniformTp(Resilient):
    """Naive split of heads over the GPUs that are left; all KV is computed again. After arXiv 2511.14116, 2025."""

    def service(self, work: ResilienceWork) -> Service:
        """Returns the elastic group with this part and those before it."""
        return Elastic(work, placement="naive", load_aware=False, backup_share=0.0, lazy=True)
