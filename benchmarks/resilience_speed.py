"""Layouts, recovery plans and an hour with three losses: how long they take on this machine.

python benchmarks/resilience_speed.py [window in seconds] prints one JSON object: milliseconds of a layout against HiGHS finding as good a
one (8 heads, 16 layers, 7 GPUs), of a layout that keeps another, of a recovery plan for 500 requests; and seconds of an hour of chat on
eight H100s with three losses, FailSafe against the plain simulator under the same load, both in one run.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

from armillary.serving.resilience import FailSafe, NoFault, ResilienceWork, failsafe_layout, make_node, plan_recovery, scripted, traffic

HEADS, LAYERS, GPUS = 8, 16, 7


def seconds_of(work: Callable[[], Any], repeats: int = 5) -> float:
    """The median call, after one that compiles."""
    work()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def by_highs() -> int:
    """The least largest load as an integer program: one GPU for each (layer, head), at most ⌈H/G⌉ heads of a layer on each."""
    cells = LAYERS * HEADS
    once: Any = kron(eye_array(cells), np.ones((1, GPUS)))
    load: Any = kron(np.ones((1, cells)), eye_array(GPUS))
    layer: Any = kron(eye_array(LAYERS), kron(np.ones((1, HEADS)), eye_array(GPUS)))
    largest: Any = csr_array(np.concatenate([np.zeros(cells), -np.ones(GPUS), np.zeros(LAYERS * GPUS)])[:, None])
    rows: Any = hstack([vstack([once, load, layer]), largest])
    low = np.concatenate([np.ones(cells), np.full(GPUS + LAYERS * GPUS, -np.inf)])
    high = np.concatenate([np.ones(cells), np.zeros(GPUS), np.full(LAYERS * GPUS, -(-HEADS // GPUS))])
    n = cells * GPUS
    cost = np.append(np.zeros(n), 1.0)
    limits = Bounds(0, np.append(np.ones(n), np.inf))
    whole = np.ones(n + 1, np.int64)
    found = milp(cost, constraints=LinearConstraint(rows.tocsr(), low, high), integrality=whole, bounds=limits).fun
    assert found is not None
    return round(found)


def main() -> None:
    """Measures and prints."""
    window = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    node = make_node("llama-3.1-70b")
    eight = node.layout(8)
    layout_s = seconds_of(lambda: failsafe_layout(HEADS, LAYERS, GPUS, placement="cyclic"), 101)
    highs_s = seconds_of(by_highs, 3)
    assert by_highs() == failsafe_layout(HEADS, LAYERS, GPUS, placement="cyclic").heads_per_gpu.sum(axis=0).max()
    keep_s = seconds_of(lambda: node.layout((0, 1, 2, 4, 5, 6, 7), keep=eight), 21)
    plan_s = seconds_of(lambda: plan_recovery(eight, 3, [2000] * 500, [2000] * 500, node=node))
    work = ResilienceWork(node, traffic("azure-conv", 12.0, window, 1), scripted(3, window), window)
    NoFault().service(work), FailSafe().service(work)
    start = time.perf_counter()
    served = FailSafe().service(work).run()
    failsafe_s = time.perf_counter() - start
    start = time.perf_counter()
    NoFault().service(work).run()
    plain_s = time.perf_counter() - start
    print(
        json.dumps(
            {
                "layout_ms": 1e3 * layout_s, "highs_ms": 1e3 * highs_s, "highs_over_layout": highs_s / layout_s,
                "kept_layout_ms": 1e3 * keep_s, "plan_500_requests_ms": 1e3 * plan_s, "simulated_s": window,
                "requests": len(work.requests), "failsafe_s": failsafe_s, "plain_simulator_s": plain_s,
                "failsafe_over_plain": failsafe_s / plain_s, "iterations": int(served.result.iterations.sum()),
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
