"""`srun-unlimited`: `srun` without the ceiling on how many may exist at once, to tell the ceiling's share from the controller's.

SLURM: Simple Linux Utility for Resource Management, JSSPP 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .running.technique import Launcher

if TYPE_CHECKING:
    from .simulation.plan import Plan
    from .workload import Work


@dataclass(frozen=True)
class SrunUnlimited(Launcher):
    """One `srun` per task, as many at a time as there are cores. Simulated only: a local Slurm has no ceiling, so `srun` is that there."""

    def plan(self, work: Work) -> Plan:
        """One central launcher."""
        from .simulation.plan import Plan, srun

        return Plan((srun(work.nodes, ceiling=0),))
