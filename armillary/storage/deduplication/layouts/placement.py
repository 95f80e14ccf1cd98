"""What every layout of a deduplicated store has in common."""

from __future__ import annotations

import numpy as np

from armillary.arena import Technique
from armillary.kernels import kernel

from ..workload import Workload
from .layout import Layout


class Placement(Technique):
    """One way to decide where chunks lie."""

    def lay(self, work: Workload) -> Layout:
        """Writes the files in the order of the stream, then the updates, and says where everything lies."""
        raise NotImplementedError


def append_updates(work: Workload, place: np.ndarray, newest: np.ndarray, end: int) -> np.ndarray:
    """`place` after all updates when new content is appended to the log from position `end` on.

    `newest[c]` is the position of chunk c, or -1. Content that is already stored is referred to.
    """
    place, newest = place.copy(), newest.copy()
    for update in work.updates:
        end = int(_append(update.refs, update.chunks, newest, place, end))
    return place


@kernel
def _append(refs, chunks, newest, place, end):
    for i in range(len(refs)):
        c = chunks[i]
        if newest[c] < 0:
            newest[c] = end
            end += 1
        place[refs[i]] = newest[c]
    return end


def append_stream(work: Workload, refs: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """(place of each reference, place of each chunk or -1, end of the log) when new chunks are appended in the order of `refs`."""
    place, newest = np.full(work.references, -1, np.int64), np.full(len(work.sizes), -1, np.int64)
    end = int(_append(refs, work.files.values[refs].astype(np.int64), newest, place, 0))
    return place, newest, end
