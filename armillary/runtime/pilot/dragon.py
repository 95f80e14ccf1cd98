"""`dragon`: one Dragon runtime holds the allocation; functions go to its warm workers, executables to its process groups.

One of the runtimes of "Integrating and Characterizing HPC Task Runtime Systems for hybrid AI-HPC workloads", arXiv 2509.20819. Here it
runs on one node through its own launcher, where the package dragonhpc is installed.

The paper is of 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import parameter

from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork
    from .simulation.plan import Plan
    from .workload import Work


@dataclass(frozen=True)
class Dragon(Launcher):
    """One Dragon runtime."""

    python: str = parameter("", "an interpreter that has dragonhpc; otherwise this one, or one of ARMILLARY_PEERS")

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})

    def plan(self, work: Work) -> Plan:
        """One central launcher behind the feed from the agent."""
        from .simulation.plan import Plan, dragon

        return Plan((dragon(work.nodes),))

    def run(self, work: RealWork) -> Ran:
        """Drives Dragon as its users do: a warm pool, and templates in one process group."""
        from .running.peers import run_peer

        return run_peer("dragon", work, self.python)
