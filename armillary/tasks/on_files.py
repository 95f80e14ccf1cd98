"""Runs a graph from a file with real files: every task reads its inputs, computes for as long as it states, and writes its outputs.

Every task has a directory, which may lie on another storage tier than those of other tasks. An input that lies elsewhere is copied into
the task's directory first, once per file and directory. Outputs that no task reads are copied home. Files are named by number, because
the names in a workflow come from strangers.
"""

from __future__ import annotations

import functools
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.tasks.graph import Graph, Task
from armillary.tasks.threads import Threads, check_count

if TYPE_CHECKING:
    import polars as pl

BLOCK = 1 << 20
#: The most bytes on all directories together, unless the caller allows more.
MOST_BYTES = 1 << 30


@loop
def _spin(iterations, x):  # type: ignore[no-untyped-def]
    for _ in range(iterations):
        x = x * 0.999 + 0.001
    return x


@functools.cache
def _iterations_per_s() -> float:
    _spin(10, 0.5)
    taken = []
    for _ in range(3):
        start = time.thread_time()
        _spin(1_000_000, 0.5)
        taken.append(time.thread_time() - start)
    return 1e6 / max(min(taken), 1e-9)


def run_on_files(
    graph: Graph,
    folder_of: Callable[[Task], Path],
    home: Path,
    *,
    workers: int = 2,
    bytes_scale: float = 1.0,
    seconds_scale: float = 1.0,
    sync: bool = True,
    most_bytes: int = MOST_BYTES,
) -> pl.DataFrame:
    """One row per task: `key`, and in seconds since the start of the run `start` and `end`, and the durations `read`, `compute`, `write`.

    Files have `bytes_scale` times their stated bytes, and tasks spin for `seconds_scale` times their stated seconds. Copies into a
    directory count as `read`, copies home as `write`. With `sync`, written files are flushed to the device and dropped from the page
    cache. The files that no task writes are made in `home` before the clock starts. All directories must exist and stay as they are
    afterwards, with the files in them.
    """
    check_count(workers, "workers")
    for name, value in (("bytes_scale", bytes_scale), ("seconds_scale", seconds_scale)):
        if not 0 <= value <= 1e6:
            raise InputError(f"found {value!r}; expected 0 to 1e6", where=name)
    folders = {task.id: Path(folder_of(task)) for task in graph.tasks}
    sizes = [int(data.nbytes * bytes_scale) for data in graph.handles]
    places: list[set[Path]] = [set() for _ in graph.handles]
    modes: list[set[bool]] = [set() for _ in graph.handles]
    for task in graph.tasks:
        for access in task.accesses:
            places[access.data.id].add(folders[task.id])
            modes[access.data.id].add(access.mode == "reads")
    for where, reads in zip(places, modes):
        if len(reads) < 2:  # It is initial data, or the end of the workflow.
            where.add(home)
    total = sum(size * len(where) for size, where in zip(sizes, places))
    if total > most_bytes:
        raise InputError(f"found {total:,} bytes in all directories; expected at most {most_bytes:,}", where=graph.name)
    return _FileRun(graph, folders, home, sizes, seconds_scale, sync).go(workers)


class _FileRun:
    def __init__(self, graph: Graph, folders: dict[int, Path], home: Path, sizes: list[int], seconds_scale: float, sync: bool) -> None:
        self.graph, self.folders, self.home, self.sizes, self.sync = graph, folders, home, sizes, sync
        self.seconds_scale = seconds_scale
        #: The directory in which each file was made.
        self.origin = [home] * len(sizes)
        written = {access.data.id for task in graph.tasks for access in task.accesses if access.mode != "reads"}
        self.initial = [n for n in range(len(sizes)) if n not in written]
        self.read = {access.data.id for task in graph.tasks for access in task.accesses if access.mode == "reads"}
        self.lock = threading.Lock()
        #: One lock per copy, so that a file is copied once and other copies go on.
        self.copying: dict[tuple[int, Path], threading.Lock] = {}
        self.rows: list[dict[str, Any]] = []
        self.began = 0.0

    def go(self, workers: int) -> pl.DataFrame:
        import polars as pl

        for number in self.initial:
            self._make(number, self.home)
        if self.seconds_scale:
            _iterations_per_s()
        bodies = Graph(self.graph.name)
        made: dict[int, Task] = {}
        for task in self.graph:
            needs = {"cores": min(task.cores, workers)}
            body = functools.partial(self._run, task)
            made[task.id] = bodies.add(body, name=task.name, key=task.key, after=[made[n] for n in task.before], needs=needs)
        self.began = time.monotonic()
        bodies.run(Threads(workers)).raise_first()
        names = ("start", "read", "compute", "write", "end")
        return pl.DataFrame(self.rows, schema={"key": pl.String, **dict.fromkeys(names, pl.Float64)})

    def _run(self, task: Task) -> None:
        folder = self.folders[task.id]
        stamps = [time.monotonic()]
        for access in task.accesses:
            if access.mode == "reads":
                self._bring(access.data.id, folder)
                _read(self._path(access.data.id, folder))
        stamps.append(time.monotonic())
        if self.seconds_scale:
            _spin(int((task.seconds("cpu") or 0.0) * self.seconds_scale * _iterations_per_s()), 0.5)
        stamps.append(time.monotonic())
        for access in task.accesses:
            if access.mode != "reads":
                number = access.data.id
                self._make(number, folder)
                self.origin[number] = folder
                if number not in self.read:
                    self._bring(number, self.home)
        stamps.append(time.monotonic())
        start, read, computed, end = stamps
        row = {"key": task.key, "start": start - self.began, "read": read - start, "compute": computed - read,
               "write": end - computed, "end": end - self.began}  # fmt: skip
        with self.lock:
            self.rows.append(row)

    def _path(self, number: int, folder: Path) -> Path:
        return folder / f"{number}.dat"

    def _make(self, number: int, folder: Path) -> None:
        block = bytes([number % 251]) * min(BLOCK, max(1, self.sizes[number]))
        left = self.sizes[number]
        with open(self._path(number, folder), "wb", buffering=0) as file:
            while left > 0:
                left -= file.write(block[:left])
            self._flush(file.fileno())

    def _bring(self, number: int, folder: Path) -> None:
        if self.origin[number] == folder:
            return
        with self.lock:
            mine = self.copying.setdefault((number, folder), threading.Lock())
        with mine:
            target = self._path(number, folder)
            if not target.exists():
                shutil.copyfile(self._path(number, self.origin[number]), target)
                with open(target, "rb+", buffering=0) as file:
                    self._flush(file.fileno())

    def _flush(self, descriptor: int) -> None:
        if self.sync:
            os.fsync(descriptor)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path: Path) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(BLOCK):
            pass
