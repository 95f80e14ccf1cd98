"""`hybrid`: Flux partitions start the executables and Dragon starts the functions, in one pilot.

A pilot holds the allocation, and inside it several runtimes run at once, each good at one kind of task. A task is bound late to the
runtime and partition that has room: functions go to warm workers, executables of one node to the Flux partition with most free cores,
wider ones to a partition whose free nodes suffice. So starts do not queue at one launcher. Both runtimes reach all nodes here, and the
agent's scheduler keeps them apart core by core (our reading).

Integrating and Characterizing HPC Task Runtime Systems for hybrid AI-HPC workloads, arXiv 2509.20819.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind, Level, NotForThisCase, parameter

from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork
    from .simulation.plan import Plan
    from .workload import Work

RIVALS = ("srun", "srun-pool", "srun-unlimited", "flux", "flux-n", "dragon")
WHY = "the published figure is of one machine; a launch rate that is a third of the published one still leaves 0.99 at 64 nodes"


@dataclass(frozen=True)
class Hybrid(Launcher):
    """Flux for executables and Dragon for functions."""

    partitions: int = parameter(0, "Flux instances; 0 is one per 64 nodes, at least 1 and at most 16", range=(0, 1024))
    python: str = parameter("", "an interpreter that has dragonhpc; otherwise this one, or one of ARMILLARY_PEERS")

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "tasks_per_s", by=Level(at_least=1500), on=Kind("null", "simulated"), source="abstract", says="over 1,500 tasks per second",
            circular="the rate of Dragon was fitted to it",
        ),
        Claim(
            "utilization", by=Level(at_least=0.996), on=Kind("mixed"), honest=(0.99, None), why=WHY, source="abstract",
            says="more than 99.6 % of the cores are busy, with executables and functions by halves, 4 to 64 nodes",
        ),
        Claim(
            "makespan", over=RIVALS, by=Gain(ratio=(1.0, None)), on=Kind("mixed"), source="our design",
            says="and no other technique ends sooner there, the start of the runtimes included",
        ),
        Claim(
            "makespan", over=RIVALS, by=Gain(ratio=(1.0, None)), on=Kind("campaign"), source="our design",
            says="no other technique ends a campaign sooner",
        ),
    )  # fmt: skip

    def plan(self, work: Work) -> Plan:
        """Two runtimes over the same nodes."""
        from .simulation.plan import partitions
        from .simulation.predict import hybrid_plan

        return hybrid_plan(work.nodes, min(work.nodes, self.partitions or partitions(work.nodes)))

    def run(self, work: RealWork) -> Ran:
        """`srun` stands in for Flux, which cannot run here; without Dragon it would be `srun-pool`, so it declines."""
        from .running.peers import interpreter
        from .running.pilots import run_pilot

        python = interpreter("dragon", self.python)
        if not (work.executables and work.functions):
            raise NotForThisCase("it is for executables and functions together")
        return run_pilot(work, ["srun", "dragon"], python=python)
