"""har: duplicates in containers that the previous version hardly used are written again.

When a version of a file is complete, the containers of which it uses less than half are sparse. While the next version is written, a
duplicate that lies in one of them is appended as a new copy. Nothing waits in memory, and a file without a complete earlier version is
written as it comes.

Accelerating restore and garbage collection in deduplication-based backup systems via exploiting historical information, USENIX ATC 2014.
Here a version is a file, and its previous version is the earlier file with which it shares most, which is our design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import kernel
from armillary.parameters import parameter

from .layouts.layout import Layout
from .layouts.placement import Placement, append_updates
from .layouts.segments import arrival_times
from .workload import Workload


@dataclass(frozen=True)
class Har(Placement):
    """Rewrites duplicates out of sparse containers (ATC 2014)."""

    sparse: float = parameter(0.5, "share of a container below which the previous version's use makes it sparse", range=(0, 1))

    def lay(self, work: Workload) -> Layout:
        """Appends chunks in the order of arrival, and then updates."""
        place, newest = np.full(work.references, -1, np.int64), np.full(len(work.sizes), -1, np.int64)
        files = len(work.files)
        previous = work.previous if len(work.previous) == files else np.full(files, -1, np.int64)
        filled = np.diff(work.files.starts) > 0
        closed, opened = np.full(files, work.references, np.int64), np.full(files, work.references, np.int64)
        when = arrival_times(work)
        closed[filled] = when[work.files.starts[1:][filled] - 1]
        opened[filled] = when[work.files.starts[:-1][filled]]
        known = np.where((previous >= 0) & (closed[previous] < opened), previous, -1)
        # A file's sparse containers are found when it opens; its own row of `marks` lasts until it closes.
        row, rows = _rows(opened, closed, filled)
        marks = np.zeros((max(1, rows), work.references // work.slots + 2), np.bool_)
        stop = int(
            _write(
                work.stream, work.file_of(), work.files.starts, work.files.values, work.sizes, known, opened, row, newest, place,
                work.slots, self.sparse * work.slots * work.chunk, marks, np.zeros(marks.shape[1], np.int64),
                np.full(len(work.sizes), -1, np.int64),
            )
        )  # fmt: skip
        return Layout(append_updates(work, place, newest, stop), work.final(), work.slots)


def _rows(opened: np.ndarray, closed: np.ndarray, filled: np.ndarray) -> tuple[np.ndarray, int]:
    """A row number for each file such that files open at once have different ones, and how many are needed."""
    import heapq

    row, rows = np.zeros(len(opened), np.int64), 0
    free: list[tuple[int, int]] = []
    for f in np.flatnonzero(filled)[np.argsort(opened[filled], kind="stable")]:
        if free and free[0][0] < opened[f]:
            row[f] = heapq.heappop(free)[1]
        else:
            row[f], rows = rows, rows + 1
        heapq.heappush(free, (int(closed[f]), int(row[f])))
    return row, rows


@kernel
def _write(stream, file_of, starts, refs, sizes, known, opened, row, newest, place, slots, least, marks, held, seen):
    log = 0
    for t in range(len(stream)):
        r = stream[t]
        f = file_of[r]
        if opened[f] == t:
            marks[row[f], :] = False
            p = known[f]
            if p >= 0:
                for q in range(starts[p], starts[p + 1]):
                    if seen[refs[q]] != f:
                        seen[refs[q]] = f
                        held[place[q] // slots] += sizes[refs[q]]
                for q in range(starts[p], starts[p + 1]):
                    k = place[q] // slots
                    if held[k] > 0 and held[k] < least:
                        marks[row[f], k] = True
                for q in range(starts[p], starts[p + 1]):
                    held[place[q] // slots] = 0
        c = refs[r]
        where = newest[c]
        if where < 0 or marks[row[f], where // slots]:
            where = log
            newest[c] = where
            log += 1
        place[r] = where
    return log
