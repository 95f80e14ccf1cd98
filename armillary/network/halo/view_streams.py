"""View-streams: views made once, and halos on a stream of their own, so that the interpreter runs ahead of the GPU.

All views of all fields are made at the start, zero-copy, for each library that reads them. One launch packs all fields of an exchange. The
sends and receives of all sides are one group of NCCL on a communication stream; events order it against the compute stream, and the host
waits for nothing, because the time step is reduced on the stream and read by kernels where it is. Launches before an exchange compute the
frame that neighbours read first, and the inside while it travels. On the host, which has no streams, messages are persistent requests.

Efficient Multi-GPU Programming in Python: Reducing Synchronization and Access Overheads, IEEE CLUSTER 2025. The abstract has the views, the
streams and the comparison with C; the split, the fused packing, the reduction and the rule for `auto` are our design.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind, Level, parameter

from .accessing import SPLITS, Accessing

if TYPE_CHECKING:
    from .clover.deck import Deck
    from .views.ladder import Access
    from .views.model import StreamModel


@dataclass(frozen=True)
class ViewStreams(Accessing):
    """Views, and exchanges that the host does not wait for."""

    split: str = parameter(
        "auto", "split launches around exchanges; auto: where kernels take longer than the host needs to issue them", choices=SPLITS
    )

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "fraction_of_native", by=Level(at_least=0.85), on=Kind("access", "gpu"), aggregate="max", honest=(0.85, 1.02), part=0.7,
            why="there is no code in C here, so the same kernels in a captured graph, without an interpreter, stand for it",
            says="up to 90 % of equivalent code in C", source="abstract", stand_in="the same kernels in a captured graph instead of C",
        ),
        Claim(
            "overlap", over="views-mpi", by=Gain(difference=(0.3, None)), on=Kind("gpus", "published"), honest=(0.3, None),
            why="the abstract says better and gives no figure; 0.3 of the transfer more than with MPI is read as that",
            says="NCCL on streams overlaps better than MPI, on 4 and 8 simulated GPUs", source="abstract",
        ),
        Claim(
            "step_time_sim", over=("convert-each-step", "views-mpi"), by=Gain(ratio=(1.0, None)), on=Kind("gpus", "published"),
            source="ours", says="quicker steps than both ways that wait, on 4 and 8 simulated GPUs",
        ),
        Claim(
            "step_time_sim", over="views-mpi", by=Gain(ratio=(0.95, None)), on=Kind("gpus", "launch-bound"), source="ours",
            says="no more than 5 % slower than views with MPI on small grids, where issuing a kernel takes longer than running it",
        ),
        Claim(
            "host_overhead", over="views-mpi", by=Gain(ratio=(0.95, None)), on=Kind("access", "host"), source="ours",
            says="no more Python per exchange than views with MPI, on the host",
        ),
    )  # fmt: skip

    def access(self, on_gpu: bool) -> Access:
        """On the host nothing runs beside anything else, so `auto` splits on GPUs only."""
        from .views.ladder import Access

        return Access(split=self.split == "always" or (self.split == "auto" and on_gpu))

    def planned(self, model: StreamModel, deck: Deck, dims: tuple[int, int]) -> Access:
        """Split only if the host still runs ahead."""
        from .views.gpus import device_bound

        split = self.access(True)
        if self.split == "auto" and not device_bound(model, deck, dims, split):
            return replace(split, split=False)
        return split
