"""The standard without a proxy that remembers requests: clients send interrupted requests again, and their answers begin again.

It works like restore-recompute, but generates the delivered part of an interrupted answer again, because the service kept no request.
An engine behind a load balancer that retries does this after a plain restart (vLLM and others, 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .simulation.restarting import Restarting
from .simulation.service import RESTART_S, Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class RestartKeep(Resilient):
    """Restart over a power of two; interrupted requests are retried from their prompt. Standard practice, 2024."""

    restart_s: float = parameter(RESTART_S, "seconds from a process's start to the loading of weights", range=(0.0, 3600.0))

    def service(self, work: ResilienceWork) -> Service:
        """Returns one group over a power of two, with retries."""
        return Restarting(work, restart_s=self.restart_s, retry=True)
