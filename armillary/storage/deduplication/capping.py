"""capping: a segment of 20 MiB may refer to at most T old containers; duplicates that lie elsewhere are written again.

A segment waits in memory. Its duplicates are counted by the container they lie in, the T containers with most of them are kept, and
every other duplicate is appended as a new copy, to which the index points from then on.

Improving restore speed for backup systems that use inline chunk-based deduplication, USENIX FAST 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import kernel
from armillary.parameters import parameter

from .layouts.layout import Layout
from .layouts.placement import Placement, append_updates
from .layouts.segments import most_buffered, segments
from .workload import Workload


@dataclass(frozen=True)
class Capping(Placement):
    """At most `containers` old containers per segment (FAST 2013)."""

    containers: int = parameter(10, "old containers to which a segment may refer (T)", range=(0, 10_000))
    segment_MiB: float = parameter(20.0, "size of a segment in MiB", range=(0.01, 1024))

    def lay(self, work: Workload) -> Layout:
        """Appends segments in the order in which they are complete, and then updates."""
        first, end = segments(work, max(1, int(self.segment_MiB * 2**20 / work.chunk)))
        place, newest = np.full(work.references, -1, np.int64), np.full(len(work.sizes), -1, np.int64)
        most = work.references // work.slots + 2
        counts, seen = np.zeros(most, np.int64), np.zeros(work.references + 1, np.int64)
        stop = int(_cap(first, end, work.files.values, newest, place, work.slots, self.containers, counts, seen))
        where = append_updates(work, place, newest, stop)
        return Layout(where, work.final(), work.slots, buffer_bytes=most_buffered(work, first, end))


@kernel
def _cap(first, end, refs, newest, place, slots, kept, counts, seen):
    # counts[k]: duplicates of this segment in container k; -1 once k is kept, 0 again afterwards.
    log = 0
    for s in range(len(first)):
        found, began = 0, log
        for r in range(first[s], end[s]):
            p = newest[refs[r]]
            if p >= 0:
                k = p // slots
                if counts[k] == 0:
                    seen[found] = k
                    found += 1
                counts[k] += 1
        for _ in range(min(kept, found)):
            best = -1
            for i in range(found):
                k = seen[i]
                if counts[k] > 0 and (best < 0 or counts[k] > counts[best] or (counts[k] == counts[best] and k < best)):
                    best = k
            if best < 0:
                break
            counts[best] = -1
        for r in range(first[s], end[s]):
            c = refs[r]
            p = newest[c]
            # Referring to chunks that this segment appended costs nothing.
            if p < 0 or (p < began and counts[p // slots] >= 0):
                p = log
                newest[c] = p
                log += 1
            place[r] = p
        for i in range(found):
            counts[seen[i]] = 0
    return log
