"""A storage profile: bytes per second of one node by tier, operation, bytes per operation, pattern and tasks per node, on a grid.

Between the points of the grid, bandwidth is interpolated linearly in the logarithms. `Profile.of` computes the grid from a cluster's
description, and `profile_storage` measures it on a real directory. The interpolation and the grid are our design.
"""

from __future__ import annotations

import math
import mmap
import os
import random as chance
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from armillary.errors import InputError, unknown
from armillary.scheduling.workflow.stages.workflow import Floats

from .tiers import Machine, Tier

TRANSFERS = tuple(4096 << shift for shift in range(0, 13, 2))
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Grid:
    """Bytes per second of one node for one tier: an array by [write, random, transfer, tasks per node]."""

    transfers: tuple[float, ...]
    workers: tuple[float, ...]
    rate: Floats
    #: Whether the page cache may have answered, so that the device was not measured.
    cached: bool = False

    def bandwidth(self, write: bool, transfer: float, random: bool, tasks_per_node: float) -> float:
        """Bytes per second of all tasks of one node; outside the grid, the value at its edge counts."""
        logs = np.log(self.rate[int(write), int(random)])
        by_worker = [_between(transfer, self.transfers, row) for row in logs.T]
        # Nine digits are the same on every CPU, and more than any storage keeps.
        return float(f"{math.exp(_between(tasks_per_node, self.workers, by_worker)):.9g}")


def _between(x: float, points: Sequence[float], values: Sequence[float] | Floats) -> float:
    """Linear interpolation over log x, constant outside."""
    if x <= points[0]:
        return float(values[0])
    for n in range(1, len(points)):
        if x <= points[n]:
            share = math.log(x / points[n - 1]) / math.log(points[n] / points[n - 1])
            return float(values[n - 1] + share * (values[n] - values[n - 1]))
    return float(values[-1])


@dataclass(frozen=True)
class Profile:
    """Grids by tier."""

    grids: Mapping[str, Grid]

    @staticmethod
    def of(machine: Machine) -> Profile:
        """What a cluster's description says about its tiers."""
        return Profile({tier.name: _modelled(tier) for tier in machine.tiers})

    def bandwidth(self, tier: str, op: str, transfer: float, random: bool = False, tasks_per_node: float = 1) -> float:
        """Bytes per second of all tasks of one node together; `op` is "read" or "write"."""
        if op not in ("read", "write"):
            raise unknown("operation", op, ("read", "write"))
        if tier not in self.grids:
            raise unknown("tier", tier, self.grids, where="profile")
        return self.grids[tier].bandwidth(op == "write", transfer, random, tasks_per_node)

    def replaced(self, tier: str, grid: Grid) -> Profile:
        """The profile with another grid for one tier."""
        return replace(self, grids={**self.grids, tier: grid})


def _modelled(tier: Tier) -> Grid:
    rate = np.empty((2, 2, len(TRANSFERS), len(WORKERS)))
    for write in (False, True):
        for random in (False, True):
            for t, transfer in enumerate(TRANSFERS):
                for w, workers in enumerate(WORKERS):
                    rate[int(write), int(random), t, w] = min(tier.node(write), workers * tier.alone(write, transfer, random))
    return Grid(tuple(map(float, TRANSFERS)), tuple(map(float, WORKERS)), rate)


def profile_storage(
    path: str | Path, *, transfers: Sequence[int] = TRANSFERS, workers: Sequence[int] = (1, 2, 4, 8), file_bytes: int = 32 << 20
) -> Grid:  # fmt: skip
    """Measures a directory: reads and writes of `transfers` bytes, in sequence and scattered, by 1 to 8 workers with a file each.

    Files are opened with O_DIRECT where the file system allows it. Otherwise they are flushed and dropped from the page cache before they
    are read, and the grid is marked as cached, because the kernel may have kept them all the same. The directory is left as it was.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError("expected a directory", where=str(path))
    for name, values in (("transfers", transfers), ("workers", workers)):
        if not values or list(values) != sorted(set(values)) or values[0] < 1:
            raise InputError(f"found {values!r}; expected increasing whole numbers", where=name)
    if any(t % 4096 for t in transfers) or transfers[-1] > file_bytes or workers[-1] > 64 or file_bytes * workers[-1] > 1 << 34:
        raise InputError("expected multiples of 4,096 bytes up to file_bytes, at most 64 workers and 16 GiB", where=str(path))
    with tempfile.TemporaryDirectory(dir=folder, prefix="armillary-profile-") as inside:
        files = [Path(inside) / f"{n}.dat" for n in range(workers[-1])]
        for file in files:
            file.write_bytes(bytes(1 << 20) * (file_bytes >> 20) + bytes(file_bytes % (1 << 20)))
        direct = _takes_direct(files[0])
        rate = np.empty((2, 2, len(transfers), len(workers)))
        for write in (False, True):
            for random in (False, True):
                for t, transfer in enumerate(transfers):
                    for w, count in enumerate(workers):
                        rate[int(write), int(random), t, w] = _measured(files[:count], file_bytes, write, random, transfer, direct)
    return Grid(tuple(map(float, transfers)), tuple(map(float, workers)), rate, cached=not direct)


def _takes_direct(file: Path) -> bool:
    if not hasattr(os, "O_DIRECT"):
        return False
    try:
        os.close(os.open(file, os.O_RDWR | os.O_DIRECT))
    except OSError:
        return False
    return True


def _measured(files: Sequence[Path], size: int, write: bool, random: bool, transfer: int, direct: bool) -> float:
    """Bytes per second of all workers together."""
    failed: list[OSError] = []
    ready = threading.Barrier(len(files) + 1)

    def work(file: Path, seed: int) -> None:
        flags = os.O_RDWR | (os.O_DIRECT if direct else 0)
        with mmap.mmap(-1, transfer) as buffer:
            descriptor = os.open(file, flags)
            try:
                if not direct:
                    os.fsync(descriptor)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                places = list(range(0, size - transfer + 1, transfer))
                if random:
                    chance.Random(seed).shuffle(places)
                ready.wait()
                for place in places:
                    if write:
                        os.pwrite(descriptor, buffer, place)
                    else:
                        os.preadv(descriptor, [buffer], place)
                if write:
                    os.fsync(descriptor)
            except OSError as error:
                failed.append(error)
            finally:
                os.close(descriptor)

    threads = [threading.Thread(target=work, args=(file, n)) for n, file in enumerate(files)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.monotonic()
    for thread in threads:
        thread.join()
    seconds = max(time.monotonic() - start, 1e-9)
    if failed:
        raise InputError(f"cannot be measured ({failed[0]})", where=str(files[0].parent))
    return len(files) * (size // transfer) * transfer / seconds
