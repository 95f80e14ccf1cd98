"""Logs on this machine: orders a second of the search, the transform's rate, denum beside xz, and what the order gives.

python benchmarks/logs_speed.py [bytes of the log] prints ratios, all measured in one run, and one JSON object. One thread unless said.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from armillary.compression.logs import CFseq, Plan, compressor, generate
from armillary.compression.logs.planning.search import Scorer
from armillary.compression.logs.records.sample import take_sample
from armillary.errors import InputError
from armillary.streams import stream

REPEATS = 3
COMPRESSORS = ("gzip-6", "bzip2-9", "zstd-3", "zstd-19", "xz-6", "brotli-9", "ppmd-6", "denum-6")


def best(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of some calls: the machine may be shared."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def orders_a_second(data: bytes, threads: int, orders: int = 200) -> float:
    """Whole 1 MB samples in new orders, assembled and compressed by zstd-1."""
    from concurrent.futures import ThreadPoolExecutor

    _, form = generate("zeek-conn", 50_000, stream(0, "format"))
    sample = take_sample(data[: 1 << 20], form)
    scorer = Scorer(sample, compressor("zstd-1"), threads)
    rng = np.random.default_rng(0)
    made = [tuple(int(i) for i in rng.permutation(form.fields)) for _ in range(orders)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(scorer.score, made[:4]))
        start = time.perf_counter()
        list(pool.map(scorer.score, made[4:]))
        return (orders - 4) / (time.perf_counter() - start)


def transform(data: bytes, plan: Plan) -> dict[str, float]:
    """MB/s of a file reordered and restored, and the memory that the stream takes."""
    with tempfile.TemporaryDirectory() as folder:
        source, moved, again = (Path(folder) / name for name in ("a", "b", "c"))
        source.write_bytes(data)
        plan.transform(source, moved)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        forward = best(lambda: plan.transform(source, moved))
        back = best(lambda: plan.inverse(moved, again))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert again.read_bytes() == data
    return {"transform_MBps": len(data) / forward / 1e6, "inverse_MBps": len(data) / back / 1e6, "peak_growth_MB": grown / 1024}


def compressors(data: bytes, plan: Plan) -> dict[str, dict[str, float]]:
    """Ratio alone and reordered by the plan that zstd-3 asked for, and MB/s both ways, of each compressor that is installed."""
    found = {}
    moved = plan.transform_bytes(data, embed=True)
    for name in COMPRESSORS:
        try:
            own = compressor(name)
        except InputError as error:
            print(f"{name}: left out ({error})")
            continue
        packed = own.compress(data)
        found[name] = {
            "ratio": len(data) / len(packed), "gain": len(packed) / len(own.compress(moved)) - 1,
            "compress_MBps": len(data) / best(lambda own=own: own.compress(data), 1) / 1e6,  # type: ignore[misc]
            "decompress_MBps": len(data) / best(lambda own=own, packed=packed: own.decompress(packed), 1) / 1e6,  # type: ignore[misc]
        }  # fmt: skip
    return found


def main() -> None:
    """Measures and prints."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    data, form = generate("zeek-conn", size, stream(0, "logs"))
    plan = CFseq(sample_bytes=1 << 20, budget_s=5).plan_for(data, form)
    found: dict[str, Any] = {"bytes": len(data), "search_s": plan.search_s, "orders": plan.tried, "estimated_gain": plan.estimated_gain}
    found |= {f"orders_per_s_{threads}": orders_a_second(data, threads) for threads in (1, 2)}
    found |= transform(data, plan)
    table = compressors(data, plan)
    for name, facts in table.items():
        shown = "  ".join(f"{key} {value:8.3f}" for key, value in facts.items())
        print(f"{name:10s} {shown}   ratio over xz-6 {facts['ratio'] / table['xz-6']['ratio']:.2f}")
    found["compressors"] = table
    print(json.dumps(found))


if __name__ == "__main__":
    main()
