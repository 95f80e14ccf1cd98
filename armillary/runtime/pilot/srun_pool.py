"""`srun-pool`: `srun` for executables, and one pool of warm interpreters per node for functions.

What a careful user does without any pilot system: a single `srun` starts the pools, so functions cost neither a controller's time nor the
start of an interpreter. Executables meet the same ceiling as with `srun`, less the one that keeps the pools.

Steps of Slurm (SLURM: Simple Linux Utility for Resource Management, JSSPP 2003) and the process pools of Python; together, our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork
    from .simulation.plan import Plan
    from .workload import Work


@dataclass(frozen=True)
class SrunPool(Launcher):
    """`srun` and warm pools."""

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})

    def plan(self, work: Work) -> Plan:
        """Two runtimes: a central launcher with a ceiling, and a pool on each node."""
        from .simulation.predict import pool_plan

        return pool_plan(work.nodes)

    def run(self, work: RealWork) -> Ran:
        """A pilot with both backends over a Slurm of virtual nodes on this machine."""
        from .running.pilots import run_pilot

        return run_pilot(work, ["srun", "pool"])
