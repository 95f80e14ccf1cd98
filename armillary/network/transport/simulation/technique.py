"""What all simulated transports have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Kind, Level, Technique, parameter
from armillary.network.transport.reduction.reduction import COMPRESSORS, KINDS, Reduction

if TYPE_CHECKING:
    from armillary.network.transport.workload import TransportWork

    from .play import Simulated
    from .way import Way

FAST = Claim(
    "simulation_time", by=Level(at_most=10.0), on=Kind("scale"), scale="large", honest=(None, 10.0), part=60.0,
    why="the paper says a few seconds; ten are asked of one core of an unknown machine, and sixty would still be useful",
    says="tens of thousands of simulated processes in a few seconds on one core", source="abstract",
)  # fmt: skip


@dataclass(frozen=True)
class SimulatedTransport(Technique):
    """One transport for all streams of a workflow, in simulated time."""

    reduction: str = parameter("none", "what publishers do to their data first", choices=KINDS)
    compressor: str = parameter("sz", "whose ratio compression has", choices=COMPRESSORS)
    eps: float = parameter(1e-3, "error bound of the compression", range=(1e-15, 1.0))
    flops: float = parameter(10.0, "flops per element that a reduction costs at each side", range=(0.0, 1e6))

    #: The name by which the layer knows it.
    transport: ClassVar[str] = ""
    takes = frozenset({"simulated"})

    def reduced(self) -> Reduction:
        """The reduction of every stream."""
        return Reduction(self.reduction, compressor=self.compressor, eps=self.eps, flops=self.flops)

    def way(self) -> Way:
        """The transport in its usual placement."""
        from .play import USUAL
        from .way import Way

        reduction = Reduction() if self.reduction == "none" else self.reduced()
        return Way(self.transport, USUAL.get(self.transport, ""), reduction)

    def simulate(self, work: TransportWork) -> Simulated:
        """Plays the workflow; streams that name a reduction of their own keep it unless this technique has one."""
        return self.way().simulate(work)
