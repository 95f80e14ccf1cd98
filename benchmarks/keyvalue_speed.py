"""Lookups, insertions and bytes an entry of SimdMap against Python's dict, a Numba typed dict, a sorted array and the other maps.

python benchmarks/keyvalue_speed.py [--entries 1000000,10000000] [--keys uint32] [--miss 0.9] [--queries 4000000] [--maps simd3,dict,…]
                                    [--passes 5] [--memory-gib 24] [--peers] [--threads 2] [--json out.json]

All maps answer the same shuffled queries one after another in one process; medians of the passes count, and every map's answers are
compared with SimdMap's. Ratios are SimdMap's lookups a second over the other's. A map that would take more than --memory-gib is
left out by name, and so is a C++ peer (--peers: libstdc++, robin-map, Abseil, oneTBB, Boost) whose headers are not installed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from armillary.storage.keyvalue import SimdMap, isa, make_work
from armillary.storage.keyvalue.arena import keyvalue
from armillary.storage.keyvalue.workload import Work

MAPS = ("simd3", "dict", "numba-dict", "sorted", "swiss", "robin-hood", "linear", "cuckoo", "pandas-index", "polars-join")
PEERS = {
    "std::unordered_map": (1, []),
    "tsl::robin_map": (2, []),
    "absl::flat_hash_map": (3, ["-labsl_raw_hash_set", "-labsl_hash", "-labsl_city", "-labsl_low_level_hash"]),
    "tbb::concurrent_unordered_map": (4, ["-ltbb"]),
    "boost::unordered_map": (5, []),
}
CPP_TYPES = {"uint32": "uint32_t", "uint64": "uint64_t"}


def median_seconds(work: Callable[[], Any], passes: int, enough: float = 20.0) -> float:
    """Seconds of the median pass; at least three, and no more once they took `enough` together."""
    seconds: list[float] = []
    while len(seconds) < passes and not (len(seconds) >= 3 and sum(seconds) > enough):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def measured(name: str, work: Work, passes: int, expected: tuple[np.ndarray, np.ndarray] | None) -> tuple[dict[str, float], Any]:
    """Figures of one technique, and its answers."""
    technique: Any = keyvalue.make(name)
    technique.build(work.keys[:3], work.values[:3], 0.8).get_many(work.queries[:3])
    start = time.perf_counter()
    table = technique.build(work.keys, work.values, 0.8)
    built = time.perf_counter() - start
    answers = table.get_many(work.queries)
    if expected is not None and not all(np.array_equal(a, b) for a, b in zip(answers, expected)):
        raise SystemExit(f"{name} answers differently")
    seconds = median_seconds(lambda: table.get_many(work.queries), passes)
    found = {
        "lookups_per_s": len(work.queries) / seconds,
        "inserts_per_s": len(work.keys) / built,
        "bytes_per_entry": table.nbytes / len(work.keys),
    }
    return found, answers


def compiled(peer: int, libraries: list[str], key: str, folder: str) -> Any:
    """The shared object of a C++ peer, or None where it cannot be built."""
    target = f"{folder}/peer{peer}.so"
    source = str(Path(__file__).with_name("keyvalue_peers.cpp"))
    flags = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread", f"-DPEER={peer}", f"-DKEY={CPP_TYPES[key]}"]
    try:
        done = subprocess.run(["g++", *flags, source, "-o", target, *libraries], capture_output=True)
    except OSError:
        return None
    if done.returncode:
        return None
    found = ctypes.CDLL(target)
    found.build.restype = ctypes.c_void_p
    found.build.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    found.get_many.restype = ctypes.c_size_t
    found.get_many.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    found.destroy.argtypes = [ctypes.c_void_p]
    return found


def with_peer(library: Any, work: Work, passes: int, threads: int, expected: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Figures of a C++ map on the same arrays."""
    values, out = work.values.astype(np.uint32), np.empty(len(work.queries), np.uint32)
    found = np.empty(len(work.queries), np.uint8)

    def build(count: int) -> Any:
        return library.build(work.keys.ctypes.data, values.ctypes.data, len(work.keys), count)

    start = time.perf_counter()
    table = build(1)
    seconds = time.perf_counter() - start

    def ask() -> None:
        library.get_many(table, work.queries.ctypes.data, len(work.queries), out.ctypes.data, found.ctypes.data)

    ask()
    if not np.array_equal(found.astype(bool), expected[1]) or not np.array_equal(out, expected[0].astype(np.uint32)):
        raise SystemExit("a C++ peer answers differently")
    figures = {"lookups_per_s": len(work.queries) / median_seconds(ask, passes), "inserts_per_s": len(work.keys) / seconds}
    library.destroy(table)
    if threads > 1:
        start = time.perf_counter()
        table = build(threads)
        figures[f"inserts_per_s on {threads} threads"] = len(work.keys) / (time.perf_counter() - start)
        library.destroy(table)
    return figures


def parallel_build(work: Work, threads: int) -> float:
    """Insertions a second of SimdMap's parallel build, compiled before."""
    few = slice(0, 200_000)
    SimdMap(work.keys[few], work.values[few], unique=True, threads=threads)
    start = time.perf_counter()
    SimdMap(work.keys, work.values, unique=True, threads=threads)
    return len(work.keys) / (time.perf_counter() - start)


def one_size(entries: int, options: argparse.Namespace) -> dict[str, Any]:
    """All maps at one size, printed as they come."""
    rng = np.random.default_rng(0)
    work = make_work("uniform", options.keys, entries, options.queries, options.miss, rng)
    print(f"\n{entries:,} {options.keys} keys, {options.queries:,} queries, {100 * options.miss:g} % misses, {isa()}")
    found: dict[str, Any] = {}
    expected = None
    for name in ["simd3", *(m for m in options.maps.split(",") if m != "simd3")]:
        technique: Any = keyvalue.technique(name)
        need = entries * technique.bytes_per_entry * (2 if work.keys.itemsize == 8 else 1)
        if need > options.memory_gib * 2**30:
            print(f"{name:30s} left out: about {need / 2**30:.0f} GiB")
            continue
        found[name], answers = measured(name, work, options.passes, expected)
        expected = expected or answers
        report(name, found[name], found["simd3"])
        gc.collect()
    assert expected is not None
    if options.threads > 1:
        rate = parallel_build(work, options.threads)
        found["simd3"][f"inserts_per_s on {options.threads} threads"] = rate
        print(f"{f'simd3 on {options.threads} threads':30s} {rate / 1e6:8.2f} M inserts/s")
    if options.peers:
        with tempfile.TemporaryDirectory() as folder:
            for name, (peer, libraries) in PEERS.items():
                library = compiled(peer, libraries, options.keys, folder)
                if library is None:
                    print(f"{name:30s} left out: not installed, or no compiler")
                    continue
                found[name] = with_peer(library, work, options.passes, options.threads if peer == 4 else 1, expected)
                report(name, found[name], found["simd3"])
    return found


def report(name: str, figures: dict[str, float], ours: dict[str, float]) -> None:
    """One line."""
    ratio = ours["lookups_per_s"] / figures["lookups_per_s"]
    size = f"{figures['bytes_per_entry']:7.1f} B" if "bytes_per_entry" in figures else "      –  "
    print(
        f"{name:30s} {figures['lookups_per_s'] / 1e6:8.2f} M lookups/s   simd3 is {ratio:6.2f} times as fast   "
        f"{figures['inserts_per_s'] / 1e6:7.2f} M inserts/s   {size}",
        flush=True,
    )


def main() -> None:
    """Measures and prints, and writes JSON where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", default="1000000,10000000")
    parser.add_argument("--keys", default="uint32", choices=list(CPP_TYPES))
    parser.add_argument("--miss", type=float, default=0.9)
    parser.add_argument("--queries", type=int, default=4_000_000)
    parser.add_argument("--maps", default=",".join(MAPS))
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--memory-gib", type=float, default=24.0)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    found = {entries: one_size(int(entries), options) for entries in options.entries.split(",")}
    if options.json:
        Path(options.json).write_text(json.dumps({"isa": isa(), "found": found}, indent=1))


if __name__ == "__main__":
    main()
