"""The standard: the engine is restarted over the largest power of two of GPUs that is left, and computes all keys and values again.

Detection, a process start, weights from host memory (the page cache: disks would be slower) over each GPU's own link, then a prompt of
every interrupted request's tokens, those delivered included. What engines such as vLLM do when a worker dies (2024 and since), at its
best: nothing is lost but time.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .simulation.restarting import Restarting
from .simulation.service import RESTART_S, Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class RestoreRecompute(Resilient):
    """Restart over a power of two, recompute all KV: the standard of serving engines, 2024."""

    restart_s: float = parameter(RESTART_S, "seconds from a process's start to the loading of weights", range=(0.0, 3600.0))

    def service(self, work: ResilienceWork) -> Service:
        """One group over a power of two."""
        return Restarting(work, restart_s=self.restart_s)
