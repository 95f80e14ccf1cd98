"""How many requests a second does each eviction policy replay, beside libCacheSim, and what does it hold in memory?

    python benchmarks/eviction_throughput.py --json throughput.json

One thread, one process. A Zipf trace of unit objects; the cache has a tenth of the distinct ones. The two simulators take turns,
several times each; medians count. libCacheSim reads the 24-byte records of a file that is in the page cache, with its hash table
set to ⌈log2(2C)⌉ bits (its default makes small caches look slower than they are). Ours is timed twice: on dense ids, and from raw
64-bit ids, mapping included.

Memory: libCacheSim's anonymous memory that a run adds in a fresh process; all arrays of our state (tables for every object of the
trace, cached or not); both for each object that the cache holds.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from armillary.storage.eviction import Arc, Clock, Fifo, FifoMep, Lfu, Lirs, Lru, S3Fifo, Sieve, Slru, TwoQ, WTinyLfu, from_ids

POLICIES = {
    "fifo": (Fifo(), "FIFO"),
    "lru": (Lru(), "LRU"),
    "clock": (Clock(), "Clock"),
    "sieve": (Sieve(), "Sieve"),
    "s3-fifo": (S3Fifo(), "S3FIFO"),
    "lfu": (Lfu(), "LFU"),
    "slru": (Slru(), "SLRU"),
    "2q": (TwoQ(), "TwoQ"),
    "arc": (Arc(), "ARC"),
    "lirs": (Lirs(), "LIRS"),
    "w-tinylfu": (WTinyLfu(), "WTinyLFU"),
    "fifo-mep": (FifoMep(), None),
}
RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


def zipf(requests: int, objects: int, alpha: float, seed: int) -> np.ndarray:
    """int64[requests]: independent references with probability proportional to rank^-alpha, ids in random order."""
    rng = np.random.default_rng(seed)
    weights = np.cumsum(np.arange(1, objects + 1, dtype=float) ** -alpha)
    ranks = np.searchsorted(weights, rng.random(requests) * weights[-1])
    return rng.permutation(objects)[ranks]


def peer_run(path: str, name: str, capacity: int) -> tuple[float, float]:
    """(seconds, miss ratio) of one replay by libCacheSim."""
    import libcachesim

    options = libcachesim.ReaderInitParam(ignore_obj_size=True)
    reader = libcachesim.TraceReader(path, libcachesim.TraceType.ORACLE_GENERAL_TRACE, options)
    cache = getattr(libcachesim, name)(capacity, hashpower=math.ceil(math.log2(2 * capacity)))
    start = time.perf_counter()
    ratio, _ = cache.process_trace(reader)
    return time.perf_counter() - start, ratio


def peer_memory(path: str, name: str, capacity: int) -> int:
    """Bytes of anonymous memory that one replay adds, the cache still alive."""
    import libcachesim

    options = libcachesim.ReaderInitParam(ignore_obj_size=True)
    reader = libcachesim.TraceReader(path, libcachesim.TraceType.ORACLE_GENERAL_TRACE, options)
    before = anonymous_bytes()
    cache = getattr(libcachesim, name)(capacity, hashpower=math.ceil(math.log2(2 * capacity)))
    cache.process_trace(reader)
    return anonymous_bytes() - before


def anonymous_bytes() -> int:
    """Resident bytes of this process that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def timed(work: object) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


def measure(names: list[str], ids: np.ndarray, share: float, repeats: int) -> list[dict[str, object]]:
    """One row a policy: millions of requests a second, ratios, bytes."""
    trace = from_ids(ids)
    capacity = max(1, int(share * trace.distinct))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "zipf.oracleGeneral.bin")
        records = np.zeros(len(ids), RECORD)
        records["id"], records["size"], records["next"] = ids, 1, -1
        records.tofile(path)
        del records
        for name in names:
            policy, peer = POLICIES[name]
            outcome = policy.simulate(trace, capacity, log=False)  # compiles
            seconds: dict[str, list[float]] = {"dense": [], "mapped": [], "peer": []}
            for _ in range(repeats):
                if peer:
                    took, ratio = peer_run(path, peer, capacity)
                    seconds["peer"].append(took)
                seconds["dense"].append(timed(lambda policy=policy: policy.simulate(trace, capacity, log=False)))
                seconds["mapped"].append(timed(lambda policy=policy: policy.simulate(from_ids(ids), capacity, log=False)))
            rate = {how: len(ids) / statistics.median(took) / 1e6 for how, took in seconds.items() if took}
            state = policy.start(capacity)
            state.grow(trace.distinct)
            row: dict[str, object] = {
                "policy": name, "requests": len(ids), "distinct": trace.distinct, "capacity": capacity, "miss_ratio": outcome.miss_ratio,
                "dense_M_per_s": rate["dense"], "mapped_M_per_s": rate["mapped"], "bytes_per_cached_object": state.nbytes / capacity,
            }  # fmt: skip
            if peer:
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                    bytes_added = pool.submit(peer_memory, path, peer, capacity).result()
                row |= {
                    "peer_M_per_s": rate["peer"], "peer_miss_ratio": ratio, "dense_over_peer": rate["dense"] / rate["peer"],
                    "mapped_over_peer": rate["mapped"] / rate["peer"], "peer_bytes_per_cached_object": bytes_added / capacity,
                }  # fmt: skip
            rows.append(row)
            show(row)
    return rows


COLUMNS = {
    "policy": "policy", "miss_ratio": "miss ratio", "dense_M_per_s": "dense M/s", "mapped_M_per_s": "mapped M/s",
    "peer_M_per_s": "peer M/s", "dense_over_peer": "dense/peer", "mapped_over_peer": "mapped/peer",
    "bytes_per_cached_object": "B/object", "peer_bytes_per_cached_object": "peer B/object",
}  # fmt: skip


def show(row: dict[str, object]) -> None:
    """One line of the table."""
    print("".join(f"{value:>14.4g}" if isinstance(value := row.get(key, "-"), float) else f"{value:>14}" for key in COLUMNS), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--share", type=float, default=0.1, help="cache size as a share of the distinct objects")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--json", type=Path, help="write the rows there")
    chosen = parser.parse_args()
    ids = zipf(chosen.requests, chosen.objects, chosen.alpha, seed=0)
    print("".join(f"{title:>14}" for title in COLUMNS.values()))
    rows = measure(chosen.policies.split(","), ids, chosen.share, chosen.repeats)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
