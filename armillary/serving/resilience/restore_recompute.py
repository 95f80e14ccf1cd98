"""The standard restarts the engine over the largest remaining power of two of GPUs and computes all keys and values again.

Detection and a process start are followed by reading weights from host memory (the page cache, since disks would be slower) over each
GPU's own link, and by a prompt of all tokens of every interrupted request, including those delivered. This is the best case of what
engines such as vLLM do when a worker dies (2024 and since), because nothing but time is lost.
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
        """Returns one group over a power of two."""
        return Restarting(work, restart_s=self.restart_s)
