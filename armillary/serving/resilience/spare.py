"""A spare GPU stands by with a running process, takes the place of a lost one and reads its weights over its own link.

The group keeps its size, and keys and values are computed again. The spare is idle until then and helps once until the lost GPU is
repaired; a second loss before that is a restart as in restore-recompute. Hot standby is old practice (Gray, Why do computers stop, 1985).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .simulation.restarting import Restarting
from .simulation.service import RESTART_S, Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class Spare(Resilient):
    """One more GPU than the others have stands by; all KV is computed again. Hot standby, Gray 1985."""

    restart_s: float = parameter(RESTART_S, "seconds from a process's start to the loading of weights", range=(0.0, 3600.0))
    spares: int = parameter(1, "the number of GPUs that stand by, beyond those of the node", range=(1, 8))

    def service(self, work: ResilienceWork) -> Service:
        """Returns the service of one group and its spares."""
        return Restarting(work, restart_s=self.restart_s, spares=self.spares)
