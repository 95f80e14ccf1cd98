"""arrival: new chunks are appended to the open container in the order of their arrival, whoever writes them.

Deduplicating stores do this by default, because there is one sequential write stream. Files that are written at the same time then lie
interleaved.

Avoiding the disk bottleneck in the Data Domain deduplication file system, USENIX FAST 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

from .layouts.layout import Layout
from .layouts.placement import Placement, append_stream, append_updates
from .workload import Workload


@dataclass(frozen=True)
class Arrival(Placement):
    """New chunks in the order of arrival (FAST 2008)."""

    def lay(self, work: Workload) -> Layout:
        """Appends the chunks of files, and then those of updates."""
        place, newest, end = append_stream(work, work.stream)
        return Layout(append_updates(work, place, newest, end), work.final(), work.slots)
