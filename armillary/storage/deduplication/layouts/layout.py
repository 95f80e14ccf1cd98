"""The place of every reference's bytes, and the runs, containers and space that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import kernel

from ..workload import Workload


@dataclass(frozen=True)
class Layout:
    """A technique's answer: reference r lies in slot place[r] % slots of container place[r] // slots.

    `chunks` int64[R] is what each reference holds after all updates. `moved_bytes` were copied by relocation, in `relocate_s` seconds of
    planning on this machine, and `buffer_bytes` is the most that waited in memory at once.
    """

    place: np.ndarray
    chunks: np.ndarray
    slots: int
    moved_bytes: int = 0
    relocate_s: float = 0.0
    buffer_bytes: int = 0

    def physical_bytes(self, sizes: np.ndarray) -> int:
        """Bytes of all copies that some file refers to."""
        _, first = np.unique(self.place, return_index=True)
        return int(sizes[self.chunks[first]].sum())

    def fill(self) -> float:
        """Share of the slots, over all containers in use, that hold a chunk to which some file refers."""
        copies = np.unique(self.place)
        return len(copies) / max(1, len(np.unique(copies // self.slots)) * self.slots)


def runs_per_file(starts: np.ndarray, place: np.ndarray, slots: int) -> np.ndarray:
    """int64[F]: the number of maximal stretches that are consecutive inside a container, in the order of each file's bytes.

    A chunk that repeats the one before it is not fetched again.
    """
    out = np.zeros(len(starts) - 1, np.int64)
    _runs(np.asarray(starts, np.int64), np.asarray(place, np.int64), slots, out)
    return out


def containers_per_file(starts: np.ndarray, place: np.ndarray, slots: int) -> np.ndarray:
    """int64[F]: the number of distinct containers in which each file's chunks lie."""
    out = np.zeros(len(starts) - 1, np.int64)
    _, dense = np.unique(place // slots, return_inverse=True)
    _containers(np.asarray(starts, np.int64), dense, np.full(int(dense.max()) + 1 if len(dense) else 0, -1, np.int64), out)
    return out


def ideal_containers(work: Workload, chunks: np.ndarray) -> np.ndarray:
    """int64[F]: ⌈bytes / container⌉ of each file, where bytes count as often as the file refers to them."""
    total = np.concatenate(([0], np.cumsum(work.sizes[chunks])))
    sizes = total[work.files.starts[1:]] - total[work.files.starts[:-1]]
    return -(-sizes // (work.slots * work.chunk))


@kernel
def _runs(starts, place, slots, out):
    for f in range(len(starts) - 1):
        last = -2
        for r in range(starts[f], starts[f + 1]):
            p = place[r]
            if p != last and (p != last + 1 or p % slots == 0):
                out[f] += 1
            last = p


@kernel
def _containers(starts, container, seen, out):
    for f in range(len(starts) - 1):
        for r in range(starts[f], starts[f + 1]):
            if seen[container[r]] != f:
                seen[container[r]] = f
                out[f] += 1
