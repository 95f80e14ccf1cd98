"""Deduplication: chunking against PyPI's fastcdc in one run, ingest of a real store by the processor's clock, and plans of relocation.

python benchmarks/deduplication_speed.py [references] prints a table. Peers that are not installed are left out by name.
"""

from __future__ import annotations

import functools
import importlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from armillary.storage.deduplication import Chunker, DedupStore, generate, relocation_plan
from armillary.timing import timed

MB = 1e6


def _all(peer: Callable, text: bytes, average: int) -> list:
    return list(peer(text, avg_size=average))


def chunking() -> None:
    """MB/s of both chunkers and of the peer's two modes, at three averages."""
    data = np.random.default_rng(0).bytes(32 << 20)
    few = data[: 2 << 20]
    peers: dict[str, Callable] = {}
    for name, module in (("fastcdc, pure Python", "fastcdc.fastcdc_py:fastcdc_py"), ("fastcdc, Cython", "fastcdc.fastcdc_cy:fastcdc_cy")):
        where, _, function = module.partition(":")
        try:
            peers[name] = getattr(importlib.import_module(where), function)
        except ImportError:
            print(f"{name}: not installed, left out")
    for average in (4096, 16384, 65536):
        ours = Chunker("fastcdc", average)
        ours.cuts(few)
        speed = len(data) / timed(functools.partial(ours.cuts, data)).median / MB
        print(f"fastcdc {average:>6} {'ours':<22} {speed:>8.0f} MB/s")
        for name, peer in peers.items():
            text = few if "pure" in name else data
            theirs = len(text) / timed(functools.partial(_all, peer, text, average), 0.2, 3).median / MB
            assert [c.offset + c.length for c in peer(few, avg_size=average)] == ours.cuts(few).tolist()
            print(f"fastcdc {average:>6} {name:<22} {theirs:>8.0f} MB/s   ours {speed / theirs:.1f} times")


def ingest() -> None:
    """MB a second of processor time and of wall time, chunking, hashing, writing and committing included."""
    data = np.random.default_rng(1).bytes(192 << 20)
    for chunker in ("fixed", "fastcdc"):
        with tempfile.TemporaryDirectory() as folder, DedupStore(folder, chunker) as store:
            store.put("warm", data[:100_000])
            wall, busy = time.perf_counter(), time.process_time()
            store.put("first", data)
            wall, busy = time.perf_counter() - wall, time.process_time() - busy
            again = time.process_time()
            store.put("again", data)
            again = time.process_time() - again
            reading = time.process_time()
            assert store.get("first") == data
            reading = time.process_time() - reading
            speeds = [len(data) / seconds / MB for seconds in (busy, wall, again, reading)]
            print("{:<8} ingest {:.0f} MB/s a core ({:.0f} by the wall), duplicates {:.0f}, reading {:.0f}".format(chunker, *speeds))


def plans(references: int) -> None:
    """Seconds and memory of a plan."""
    for flavour in ("vm", "home"):
        work = generate(flavour, np.random.default_rng(2), references=references)
        relocation_plan([[0, 1]], slots=256)
        start = time.perf_counter()
        relocation_plan(work.files, slots=256)
        seconds = time.perf_counter() - start
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{flavour:<8} {work.references} references, {len(work.sizes)} chunks: {seconds:.1f} s, process {most:.2f} GiB at most")


if __name__ == "__main__":
    chunking()
    ingest()
    plans(int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000)
