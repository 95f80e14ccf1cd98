"""What deduplication and relocation would give, before anything is moved."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from ..arrival import Arrival
from ..layouts.layout import runs_per_file
from ..readers.formats import read_work
from ..reodedup import Reodedup
from ..simulation.reading import read_all
from ..workload import NVME, Devices


@dataclass(frozen=True)
class Advice:
    """Bytes before and after deduplication, and mean runs and modelled MB/s per file before and after relocation."""

    files: int
    logical_bytes: int
    physical_bytes: int
    runs_arrival: float
    runs_relocated: float
    read_arrival_MBps: float
    read_relocated_MBps: float
    moved_bytes: int

    @property
    def dedup_ratio(self) -> float:
        """Logical over physical bytes."""
        return self.logical_bytes / self.physical_bytes if self.physical_bytes else 1.0

    def __str__(self) -> str:
        if not self.physical_bytes:
            return "nothing to store"
        worth = self.read_relocated_MBps / self.read_arrival_MBps
        return (
            f"deduplication keeps {self.physical_bytes} of {self.logical_bytes} bytes (ratio {self.dedup_ratio:.2f}); relocation "
            f"moves {self.moved_bytes} bytes once, takes the runs per file from {self.runs_arrival:.1f} to {self.runs_relocated:.1f} "
            f"and reading to {worth:.2f} times"
        )


def advise(
    tree: str | os.PathLike[str], *, chunker: str = "fixed", chunk: int = 16384, writers: int = 16, devices: Devices = NVME
) -> Advice:
    """Scans a directory, a trace or an OCI layout once, and says what deduplication would keep and what relocation would then gain.

    `writers` is the number of files that were written at once. Speeds come from the arena's read model on `devices`.
    """
    work = read_work(tree, chunker=chunker, chunk=chunk, writers=writers, devices=devices)
    before, after = Arrival().lay(work), Reodedup(budget=1.0).lay(work)
    filled = np.diff(work.files.starts) > 0
    if not filled.any():
        return Advice(len(work.files), 0, 0, 0.0, 0.0, 0.0, 0.0, 0)
    runs, speeds = [], []
    for layout in (before, after):
        runs.append(float(runs_per_file(work.files.starts, layout.place, work.slots)[filled].mean()))
        speeds.append(float(read_all(work, layout, np.random.default_rng(0)).throughput.mean()))
    logical, physical = int(work.sizes[before.chunks].sum()), before.physical_bytes(work.sizes)
    return Advice(len(work.files), logical, physical, runs[0], runs[1], speeds[0], speeds[1], after.moved_bytes)
