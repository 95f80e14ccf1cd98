"""`flux`: one Flux instance holds the whole allocation and starts every task itself.

Steps no longer pass the cluster's controller, and no launcher process lives as long as a task. A function is a new interpreter.

One of the runtimes of "Integrating and Characterizing HPC Task Runtime Systems for hybrid AI-HPC workloads", arXiv 2509.20819.

Flux: A Next-Generation Resource Management Framework for Large HPC Centers, ICPP Workshops 2014.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import NotForThisCase

from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork
    from .simulation.plan import Plan
    from .workload import Work

WITHOUT = "found no `flux` in PATH: flux-core is not installed, and flux-python has no library without it"
UNTRIED = "a `flux` is installed, but this version has no backend for it: none could be tried where it was written"


@dataclass(frozen=True)
class Flux(Launcher):
    """One Flux instance."""

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})

    def plan(self, work: Work) -> Plan:
        """One launcher that is slower on more nodes, behind the feed from the agent."""
        from .simulation.plan import Plan, flux

        return Plan((flux(work.nodes),))

    def run(self, work: RealWork) -> Ran:
        """Declines, with the reason."""
        raise NotForThisCase(WITHOUT if shutil.which("flux") is None else UNTRIED)
