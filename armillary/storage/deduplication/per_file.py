"""per-file: a file waits in memory until it is closed and is then appended in one piece.

This undoes the interleaving of concurrent writers at the price of memory for all open files. Chunks that earlier files hold stay where
they are.

It is a known remedy, after the stream-wise layout of Avoiding the disk bottleneck in the Data Domain deduplication file system, USENIX
FAST 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .layouts.layout import Layout
from .layouts.placement import Placement, append_stream, append_updates
from .layouts.segments import most_buffered, segments
from .workload import Workload


@dataclass(frozen=True)
class PerFile(Placement):
    """Whole files, which are appended when they are closed (FAST 2008)."""

    def lay(self, work: Workload) -> Layout:
        """Appends files in the order of their last write."""
        first, end = segments(work, max(1, work.references))
        lengths = end - first
        refs = np.repeat(first - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) + np.arange(int(lengths.sum()))
        place, newest, log = append_stream(work, refs)
        buffered = most_buffered(work, first, end)
        return Layout(append_updates(work, place, newest, log), work.final(), work.slots, buffer_bytes=buffered)
