"""`flux-n`: the nodes are cut into contiguous partitions, each with a Flux instance of its own.

Instances start tasks side by side, and each knows few nodes, which keeps it fast. The agent places a task in the partition with most free
cores, and a task of several nodes where enough of them are free together. What is left in common is the feed from the agent.

A runtime of "Integrating and Characterizing HPC Task Runtime Systems for hybrid AI-HPC workloads", arXiv 2509.20819. The number of
partitions is our design: one per 64 nodes, at most 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind, Level, NotForThisCase, parameter

from .flux import UNTRIED, WITHOUT
from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork
    from .simulation.plan import Plan
    from .workload import Work

#: Every other technique that is simulated.
RIVALS = ("srun", "srun-pool", "srun-unlimited", "flux", "dragon", "hybrid")
WHY = "the campaign is shaped after a description and its lengths are ours, so a gain within ten points of the published ones counts"


@dataclass(frozen=True)
class FluxN(Launcher):
    """Flux instances on partitions of the nodes."""

    partitions: int = parameter(0, "how many; 0 is one per 64 nodes, at least 1 and at most 16", range=(0, 1024))

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "tasks_per_s", by=Level(at_least=930), on=Kind("null", "simulated"), source="abstract", says="930 tasks per second",
            circular="it is the rate of the feed",
        ),
        Claim(
            "makespan", over="srun", by=Gain(percent=(30, 60)), on=Kind("campaign"), honest=(20, 70), why=WHY, source="abstract",
            says="a campaign takes 30 to 60 % less time than with srun",
        ),
        Claim(
            "makespan", over=RIVALS, by=Gain(ratio=(1.0, None)), on=Kind("campaign"), source="our design",
            says="and no other technique is faster, warm pools and an srun without ceiling included",
        ),
    )  # fmt: skip

    def plan(self, work: Work) -> Plan:
        """One launcher per partition, behind one feed."""
        from .simulation.plan import Plan, flux, partitions

        return Plan((flux(work.nodes, min(work.nodes, self.partitions or partitions(work.nodes))),))

    def run(self, work: RealWork) -> Ran:
        """Declines, with the reason."""
        import shutil

        raise NotForThisCase(WITHOUT if shutil.which("flux") is None else UNTRIED)
