"""View-graphs: view-streams whose whole time step is captured in a graph, so that the interpreter leaves the loop.

A graph is launched by one call, whatever it holds, and the steps that alternate their sweeps are two graphs. If a GPU cannot capture the
step, it is issued call by call as before. On the host, the kernels between two exchanges are one compiled call.

Efficient Multi-GPU Programming in Python: Reducing Synchronization and Access Overheads, IEEE CLUSTER 2025, is what it starts from; the
graph is our addition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind

from .accessing import Accessing

if TYPE_CHECKING:
    from .clover.deck import Deck
    from .views.ladder import Access
    from .views.model import StreamModel

_OTHERS = ("convert-each-step", "views-mpi", "view-streams")


@dataclass(frozen=True)
class ViewGraphs(Accessing):
    """View-streams in captured graphs."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "step_time_sim", over=_OTHERS, by=Gain(ratio=(1.0, None)), on=(Kind("gpus", "published"), Kind("gpus", "launch-bound")),
            source="ours", says="the quickest steps of the ladder, on 4 and 8 simulated GPUs and grids of any size",
        ),
        Claim(
            "host_overhead", over="view-streams", by=Gain(ratio=(0.95, None)), on=Kind("access", "host"), source="ours",
            says="no more Python per exchange than view-streams, on the host",
        ),
    )  # fmt: skip

    def access(self, on_gpu: bool) -> Access:
        """A graph of a step that is split on GPUs."""
        from .views.ladder import Access

        return Access(split=on_gpu, graph=True)

    def planned(self, model: StreamModel, deck: Deck, dims: tuple[int, int]) -> Access:
        """Launches in a graph cost the host nothing, but a split kernel has a shortest time too."""
        from .views.gpus import simulate

        split = self.access(True)
        whole = replace(split, split=False)
        return min((split, whole), key=lambda access: simulate(model, deck, dims, access, pairs=1).seconds)
