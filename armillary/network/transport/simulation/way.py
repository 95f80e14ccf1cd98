"""One way in which a workflow's data may go: transport, placement, reduction, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from armillary.network.transport.reduction.reduction import Reduction

if TYPE_CHECKING:
    from armillary.network.transport.workload import TransportWork

    from .play import Simulated


@dataclass(frozen=True)
class Way:
    """A transport for all streams. Without a `placement` the better one counts, which is what `ideal` has."""

    transport: str
    placement: str = ""
    reduction: Reduction = field(default_factory=Reduction)
    #: Every so many-th of the steps that streams publish now.
    every: int = 1

    def simulate(self, work: TransportWork) -> Simulated:
        """Plays the workflow; streams that name a reduction of their own keep it unless this way has one."""
        workflow = work.workflow if self.reduction.kind == "none" else work.workflow.with_reduction(self.reduction)
        if self.every > 1:
            workflow = workflow.less_often(self.every)
        return workflow.simulate(work.cluster, self.transport, placement=self.placement)
