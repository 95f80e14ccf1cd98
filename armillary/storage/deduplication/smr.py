"""smr: a segment keeps the T old containers that together hold most of its distinct chunks, and writes the rest again.

A chunk that was rewritten lies in several containers. Capping counts each chunk only where its newest copy lies. Here all copies count,
and a container is worth only the chunks that the containers chosen before it do not hold. That is a submodular function, so the greedy
choice comes within 1 - 1/e of the best one.

Improving restore performance in deduplication systems via a cost-efficient rewriting scheme, IEEE TPDS 2019. That the four newest copies
of a chunk are known is our design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import kernel, part
from armillary.parameters import parameter

from .layouts.layout import Layout
from .layouts.placement import Placement, append_updates
from .layouts.segments import most_buffered, segments
from .workload import Workload

COPIES = 4


@dataclass(frozen=True)
class Smr(Placement):
    """Submodular choice of `containers` containers per segment (TPDS 2019)."""

    containers: int = parameter(10, "old containers to which a segment may refer (T)", range=(0, 10_000))
    segment_MiB: float = parameter(20.0, "size of a segment in MiB", range=(0.01, 1024))

    def lay(self, work: Workload) -> Layout:
        """Appends segments in the order in which they are complete, and then updates."""
        first, end = segments(work, max(1, int(self.segment_MiB * 2**20 / work.chunk)))
        place = np.full(work.references, -1, np.int64)
        copies = np.full((len(work.sizes), COPIES), -1, np.int64)
        most = work.references // work.slots + 2
        stop = int(
            _choose(
                first, end, work.files.values, copies, place, work.slots, self.containers,
                np.zeros(most, np.int64), np.zeros(most, np.int64), np.full(len(work.sizes), -1, np.int64),
            )
        )  # fmt: skip
        where = append_updates(work, place, copies[:, 0].copy(), stop)
        return Layout(where, work.final(), work.slots, buffer_bytes=most_buffered(work, first, end))


@part
def _chosen_copy(copies, c, slots, chosen, mark, began):
    """The place of chunk c in a container that this segment chose or in what it appended; -1 if it is in neither."""
    for i in range(copies.shape[1]):
        p = copies[c, i]
        if p >= 0 and (p >= began or chosen[p // slots] == mark):
            return p
    return -1


@kernel
def _choose(first, end, refs, copies, place, slots, kept, counts, chosen, seen):
    # chosen[k] == mark of this segment: its container k is kept. seen[c]: round in which chunk c was counted.
    log, turn = 0, 0
    for s in range(len(first)):
        began, mark = log, s + 1
        for _ in range(kept):
            turn += 1
            best = -1
            for r in range(first[s], end[s]):
                c = refs[r]
                if seen[c] == turn or _chosen_copy(copies, c, slots, chosen, mark, began) >= 0:
                    continue
                seen[c] = turn
                for i in range(copies.shape[1]):
                    if copies[c, i] >= 0:
                        k = copies[c, i] // slots
                        counts[k] += 1
                        if best < 0 or counts[k] > counts[best] or (counts[k] == counts[best] and k < best):
                            best = k
            for r in range(first[s], end[s]):
                for i in range(copies.shape[1]):
                    if copies[refs[r], i] >= 0:
                        counts[copies[refs[r], i] // slots] = 0
            if best < 0:
                break
            chosen[best] = mark
        for r in range(first[s], end[s]):
            c = refs[r]
            p = _chosen_copy(copies, c, slots, chosen, mark, began)
            if p < 0:
                p = log
                log += 1
                for i in range(copies.shape[1] - 1, 0, -1):
                    copies[c, i] = copies[c, i - 1]
                copies[c, 0] = p
            place[r] = p
    return log
