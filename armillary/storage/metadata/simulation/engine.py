"""What every metadata engine offers: a byte space, operations on it, and the accesses that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arena import Technique

from .accesses import Access, empty, listed

if TYPE_CHECKING:
    from ..workload import Work

OK, ENOENT, EEXIST, ENOTDIR, EISDIR, EINVAL, ENOTEMPTY = 0, 2, 17, 20, 21, 22, 39


@dataclass(frozen=True)
class Batch:
    """Jobs over one access list: accesses [first, last) each, the operation (-1 for background), and the needs besides the device.

    `home` is the handler that must run it (-1 for any), `lock` the directory whose lock it holds (-1 for none), and `serial_us` the time
    under the engine's one global lock.
    """

    first: np.ndarray
    last: np.ndarray
    operation: np.ndarray
    home: np.ndarray
    lock: np.ndarray
    software_us: np.ndarray
    serial_us: np.ndarray


class Engine:
    """A layout at work. Subclasses fill `space` (uint8) and implement `step` and `tree`."""

    space: np.ndarray
    #: Operations per microsecond in the simulation so far, which tells an engine how far apart its operations are.
    pace: float = 0.0

    def __init__(self, work: Work) -> None:
        self.work = work
        #: errno of each operation.
        self.status = np.zeros(len(work.ops), np.uint8)

    def step(self, first: int, last: int) -> tuple[int, np.ndarray, Batch]:
        """Does operations [first, last) or fewer; returns (how far it came, rows of accesses, the jobs)."""
        raise NotImplementedError

    def tree(self) -> dict[tuple[int, bytes], tuple[int, int, int]]:
        """Returns (directory, name) → (id, mode, size), read from the space alone."""
        raise NotImplementedError

    def load(self) -> None:
        """Does the operations that build the tree; their accesses are not kept."""
        done = 0
        while done < self.work.loaded:
            done, _, _ = self.step(done, min(self.work.loaded, done + 16_384))

    def do(self, first: int, last: int | None = None) -> list[Access]:
        """Does these operations and lists their accesses."""
        done, last = first, first + 1 if last is None else last
        found: list[Access] = []
        while done < last:
            done, rows, _ = self.step(done, last)
            found += listed(np.concatenate([np.array([[len(rows), 0]]), rows]))
        return found


class MetadataEngine(Technique):
    """A technique of this arena, whose `start(work, cache_bytes)` gives an empty engine."""

    def start(self, work: Work, cache_bytes: int, *, granule: int = 4096) -> Engine:
        """Makes an engine for this work; `cache_bytes` is the device's cache, to which host caches are proportional."""
        raise NotImplementedError


def access_list(rows: int = 4_000_000) -> np.ndarray:
    """Makes an access list that is large enough for any batch."""
    return empty(rows)


def plain_batch(ends: np.ndarray, first: int, home: Any, lock: Any, software_us: Any, serial_us: Any) -> Batch:
    """Returns one job for each operation from `first` on, whose accesses end at `ends`."""
    n = len(ends)
    starts = np.concatenate([[0], ends[:-1]]) if n else ends

    def filled(value: Any, kind: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(value, kind), n)

    return Batch(starts, ends, first + np.arange(n), filled(home, np.int64), filled(lock, np.int64),
                 filled(software_us, float), filled(serial_us, float))  # fmt: skip
