"""`srun`: inside one allocation, every task is started by an `srun` of its own.

One central controller starts each step, and an `srun` lives as long as its task, so a site's bound on how many may exist at once bounds
the tasks that run. A function is a new interpreter, started like any executable; the time in which an interpreter starts is not simulated.

The baseline of "Integrating and Characterizing HPC Task Runtime Systems for hybrid AI-HPC workloads", arXiv 2509.20819.

SLURM: Simple Linux Utility for Resource Management, JSSPP 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Kind, Level, Parity

from .running.technique import EXECUTABLES, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork
    from .simulation.plan import Plan
    from .workload import Work

#: Every other technique that is simulated.
OTHERS = ("srun-pool", "srun-unlimited", "flux", "flux-n", "dragon", "hybrid", "auto")


@dataclass(frozen=True)
class Srun(Launcher):
    """One `srun` per task."""

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES})
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "tasks_per_s", by=Level(at_least=152), on=Kind("null", "simulated"), source="abstract", says="152 tasks per second at its peak",
            circular="it is the service time of the simulated controller",
        ),
        Claim(
            "utilization", by=Level(at_most=0.5), on=Kind("ceiling"), source="abstract", says="utilization below one half",
            circular="112 launches at a time on 224 cores are an input",
        ),
        Claim(
            "makespan", over=OTHERS, by=Parity(within=0.01), on=Kind("misfit"), source="our design",
            says="with tasks of an hour on one node, no pilot differs from it by more than 1 %",
        ),
    )  # fmt: skip

    def plan(self, work: Work) -> Plan:
        """One central launcher with a ceiling."""
        from .simulation.plan import Plan, srun

        return Plan((srun(work.nodes),))

    def run(self, work: RealWork) -> Ran:
        """A pilot over a Slurm of virtual nodes on this machine."""
        from .running.pilots import run_pilot

        return run_pilot(work, ["srun"])
