"""A layout on a real DedupStore on this machine's disk, which is measured instead of simulated."""

from __future__ import annotations

import tempfile

import numpy as np

from armillary.arena import NotForThisCase
from armillary.timing import Stopwatch

from ..arrival import Arrival
from ..layouts.layout import containers_per_file, ideal_containers, runs_per_file
from ..layouts.placement import Placement
from ..layouts.segments import segments
from ..per_file import PerFile
from ..reodedup import Reodedup
from ..workload import Workload
from .dedup_store import DedupStore, Writer
from .inspection import chunks_and_recipes


def measure(placement: Placement, work: Workload) -> dict[str, float]:
    """Writes the work's files as the technique would, relocates if it does, and reads every file back from cold containers."""
    if not isinstance(placement, Arrival | PerFile | Reodedup):
        raise NotForThisCase("the store neither rewrites duplicates nor keeps one file per chunk")
    with tempfile.TemporaryDirectory(prefix="armillary-dedup-") as folder, DedupStore(folder, chunk=work.chunk) as store:
        seconds = _write(store, work, whole=isinstance(placement, PerFile))
        logical = int(work.sizes[work.files.values].sum())
        moved, relocating = 0, 0.0
        if isinstance(placement, Reodedup):
            for _ in range(placement.rounds):
                report = store.relocate(placement.budget, slack=placement.slack, mode=placement.mode)
                moved, relocating = moved + report.moved_bytes, relocating + report.seconds
        speed = _read(store, work)
        table, files = chunks_and_recipes(store)
        place = (table[:, 1] * store.slots + table[:, 2])[files.values]
        containers = containers_per_file(files.starts, place, store.slots)
        return {
            "read_throughput": float(speed.mean()),
            "read_p10": float(np.quantile(speed, 0.1)),
            "full_dedup_read": float(speed.mean()),
            "runs_per_file": float(runs_per_file(files.starts, place, store.slots).mean()),
            "containers_per_file": float(containers.mean()),
            "containers_over_ideal": float(containers.sum() / ideal_containers(work, work.files.values).sum()),
            "dedup_ratio": store.dedup_ratio(),
            "container_fill": len(table) / (len(np.unique(table[:, 1])) * store.slots),
            "moved_bytes": moved / int(table[:, 3].sum()),
            "disk_over_live": store.space().ratio,
            "relocate_s": relocating,
            "ingest_MBps": logical / seconds / 1e6,
            "index_bytes_per_chunk": store.index.bytes() / len(table),
        }


def payload(chunk: int, size: int, pool: bytes) -> bytes:
    """Bytes that no other chunk has, which are its number and a piece of a pool of random bytes."""
    at = (chunk * 977) % (len(pool) - size)
    return chunk.to_bytes(8, "little") + pool[at + 8 : at + size]


def _write(store: DedupStore, work: Workload, *, whole: bool) -> float:
    """Seconds to write all files, interleaved as in the stream or each in one piece."""
    pool = np.random.default_rng(7).bytes(1 << 20)
    refs, file_of = work.stream, work.file_of()
    if whole:
        first, end = segments(work, max(1, work.references))
        refs = np.concatenate([np.arange(a, b) for a, b in zip(first, end, strict=True)])
    left = np.diff(work.files.starts).copy()
    opened: dict[int, Writer] = {}
    cuts = np.flatnonzero(np.diff(file_of[refs])) + 1
    seconds = 0.0
    for piece in np.split(refs, cuts):
        data = b"".join(payload(int(c), int(work.sizes[c]), pool) for c in work.files.values[piece])
        f = int(file_of[piece[0]])
        with Stopwatch() as watch:
            if f not in opened:
                opened[f] = store.writer(f"{f:09d}")
            opened[f].write(data)
            left[f] -= len(piece)
            if not left[f]:
                opened.pop(f).close()
        seconds += watch.seconds
    return seconds


def _read(store: DedupStore, work: Workload) -> np.ndarray:
    """MB/s of each file, read once in random order after the page cache was dropped."""
    filled = np.flatnonzero(np.diff(work.files.starts))
    store.get(f"{filled[0]:09d}")
    store.containers.drop_cached_pages()
    speed = []
    for f in np.random.default_rng(3).permutation(filled):
        with Stopwatch() as watch:
            size = len(store.get(f"{f:09d}"))
        speed.append(size / watch.seconds / 1e6)
    return np.array(speed)
