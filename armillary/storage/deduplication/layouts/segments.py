"""Segments: the chunks of each open file gather in memory until a segment is full or the file is closed."""

from __future__ import annotations

import numpy as np

from ..workload import Workload


def segments(work: Workload, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(first, end) references of the segments of at most `length` chunks of each file, in the order in which they are complete."""
    sizes = np.diff(work.files.starts)
    pieces = -(-sizes // length)
    file = np.repeat(np.arange(len(sizes)), pieces)
    number = np.arange(len(file)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = work.files.starts[file] + number * length
    end = np.minimum(first + length, work.files.starts[file + 1])
    order = np.argsort(arrival_times(work)[end - 1], kind="stable")
    return first[order], end[order]


def arrival_times(work: Workload) -> np.ndarray:
    """The place of each reference in the stream."""
    when = np.empty(work.references, np.int64)
    when[work.stream] = np.arange(work.references)
    return when


def most_buffered(work: Workload, first: np.ndarray, end: np.ndarray) -> int:
    """The most bytes that are held at once when a segment stays in memory from its first chunk to its last."""
    if not len(first):
        return 0
    when = arrival_times(work)
    total = np.concatenate(([0], np.cumsum(work.sizes[work.files.values])))
    change = np.zeros(work.references + 1, np.int64)
    change[: work.references] = work.sizes[work.files.values[work.stream]]
    np.add.at(change, when[end - 1] + 1, -(total[end] - total[first]))
    return int(np.cumsum(change).max())
