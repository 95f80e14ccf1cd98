"""Views with MPI: all views are made once, and exchanges wait, because MPI knows nothing of streams.

This is the first half of view-streams, and what a careful program does today: zero-copy views for every library, one launch that packs all
fields of an exchange, and messages whose halos the host waits for.

Efficient Multi-GPU Programming in Python: Reducing Synchronization and Access Overheads, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind

from .accessing import Accessing

if TYPE_CHECKING:
    from .views.ladder import Access


@dataclass(frozen=True)
class ViewsMpi(Accessing):
    """Views made once, and MPI that the host waits for."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "host_overhead", over="convert-each-step", by=Gain(ratio=(2.0, None)), on=Kind("access", "host"),
            honest=(2.0, None), why="the abstract says significantly and gives no figure; half of the overhead is read as that",
            says="access through views improves performance significantly, on the host", source="abstract",
        ),
        Claim(
            "host_overhead", over="convert-each-step", by=Gain(ratio=(2.0, None)), on=Kind("access", "gpu"),
            honest=(2.0, None), why="the abstract says significantly and gives no figure; half of the overhead is read as that",
            says="access through views improves performance significantly, on a GPU", source="abstract",
        ),
    )  # fmt: skip

    def access(self, on_gpu: bool) -> Access:
        """Nothing is made anew, and the host waits."""
        from .views.ladder import Access

        return Access(sync=True)
