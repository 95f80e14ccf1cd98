"""per-file: a file waits in memory until it is closed and is then appended in one piece.

Undoes the interleaving of concurrent writers at the price of memory for all open files; what earlier files hold stays where it is.
A known remedy, after the stream-wise layout of Avoiding the disk bottleneck in the Data Domain deduplication file system, FAST 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .layout import Layout
from .segments import most_buffered, segments
from .technique import Placement, append_stream, append_updates
from .workload import Workload


@dataclass(frozen=True)
class PerFile(Placement):
    """Whole files, appended when closed (FAST 2008)."""

    def lay(self, work: Workload) -> Layout:
        """Files in the order of their last write."""
        first, end = segments(work, max(1, work.references))
        lengths = end - first
        refs = np.repeat(first - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) + np.arange(int(lengths.sum()))
        place, newest, log = append_stream(work, refs)
        buffered = most_buffered(work, first, end)
        return Layout(append_updates(work, place, newest, log), work.final(), work.slots, buffer_bytes=buffered)
