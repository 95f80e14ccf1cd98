"""arrival: chunks that are new are appended to the open container as they come, whoever writes them.

What deduplicating stores do by default: one sequential write stream, and files that were written at the same time lie interleaved.
Avoiding the disk bottleneck in the Data Domain deduplication file system, USENIX FAST 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

from .layout import Layout
from .technique import Placement, append_stream, append_updates
from .workload import Workload


@dataclass(frozen=True)
class Arrival(Placement):
    """New chunks in the order of arrival (FAST 2008)."""

    def lay(self, work: Workload) -> Layout:
        """Appends; updates are appended too."""
        place, newest, end = append_stream(work, work.stream)
        return Layout(append_updates(work, place, newest, end), work.final(), work.slots)
