"""Cutting 200 blocks over 6 tiers: BSDP against the classic linear-partition programme, in one run; and passes simulated a second.

python benchmarks/tiers_speed.py
"""

from __future__ import annotations

import sys
import time

import numpy as np

from armillary.serving.tiers import Arts, Hyperion, bsdp, serve
from armillary.serving.tiers.workload import built_in
from armillary.timing import timed

SEED = 0


def linear_partition(cost: np.ndarray, memory: np.ndarray, capacity: np.ndarray, budget: np.ndarray) -> float:
    """The least largest stage, tier by tier over all prefixes: O(tiers · blocks²), each row of prefixes as one NumPy call."""
    sums, held = np.concatenate([[0.0], np.cumsum(cost)]), np.concatenate([[0.0], np.cumsum(memory)])
    best = np.concatenate([[0.0], np.full(len(cost), np.inf)])
    for speed, room in zip(capacity, budget, strict=True):
        new = np.full(len(best), np.inf)
        for end in range(1, len(best)):
            stage = np.maximum(best[:end], (sums[end] - sums[:end]) / speed)
            new[end] = stage[held[end] - held[:end] <= room].min(initial=np.inf)
        best = new
    return float(best[-1])


def main() -> None:
    """Prints a table."""
    rng = np.random.default_rng(SEED)
    cost, memory = rng.uniform(0.5, 2.0, 200), rng.uniform(0.5, 1.5, 200)
    capacity, budget = rng.uniform(1.0, 10.0, 6), np.full(6, 60.0)
    cuts, bound = bsdp(cost, memory, capacity, budget)
    assert abs(bound - linear_partition(cost, memory, capacity, budget)) < 1e-9 * bound
    ours = timed(lambda: bsdp(cost, memory, capacity, budget), min_seconds=0.5).median
    theirs = timed(lambda: linear_partition(cost, memory, capacity, budget), min_seconds=0.5).median
    print(f"200 blocks, 6 tiers: bsdp {1e3 * ours:.2f} ms, linear partition {1e3 * theirs:.2f} ms: {theirs / ours:.1f} times; cuts {cuts}")
    arts = Arts([1.0] * 64)
    pick = timed(lambda: arts.pick(1.0, 0.0), min_seconds=0.2).median
    print(f"ARTS among 64 nodes: {1e6 * pick:.1f} µs a decision")
    work = built_in("phi-3-medium", "mixed", 0.6, "even", 600.0, False, rng)
    how = Hyperion()
    plan = how.cut(work.costs, work.mix)
    start = time.perf_counter()
    serve(work.costs, plan, how.dispatcher(work.costs, plan, work.mix), work.requests, work.mix)
    seconds = time.perf_counter() - start
    passes = 3 * int(work.requests.output.sum())
    print(f"{len(work.requests)} requests, {passes:,} passes of a stage in {seconds:.2f} s: {passes / seconds:,.0f} a second")


if __name__ == "__main__":
    sys.exit(main())
