"""Erasure coding and repair planning: ratios to peers in one run, and how long large repairs take to plan and simulate.

python benchmarks/repair_speed.py [codes] [plans] [large] prints JSON, one object a line; all three without a word. Codes: decode and
encode against isa-l (through pyeclib) and zfec, one thread, blocks of 1 MiB; peers that are not installed are left out. Plans: one
degraded read. Large: a node of 100 000 stripes over 20 nodes, planned and simulated.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from armillary.storage.repair import FullRepair, Ran, ReedSolomon, RepairBoost, Rp, SwitchTree, simulate
from armillary.storage.repair.coding import galois
from armillary.storage.repair.workload import built_in


def seconds_of(work: Callable[[], Any], repeats: int = 9) -> float:
    """The median call."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def codes() -> None:
    """Encode m blocks and rebuild one lost block."""
    rng = np.random.default_rng(0)
    for k, m in ((4, 2), (6, 3), (10, 4), (12, 4)):
        code, length = ReedSolomon(k, m), 1 << 20
        data = rng.integers(0, 256, (k, length), np.uint8)
        stripe = np.concatenate([data, code.encode(data)])
        helpers = np.arange(1, k + 1)
        coefficients = code.coefficients(0, helpers.tolist())
        sources = np.ascontiguousarray(stripe[1 : k + 1])
        out = np.empty(length, np.uint8)
        ours = seconds_of(partial(galois.combine, coefficients, sources, out), 25)
        encode = seconds_of(partial(code.encode, data))
        found: dict[str, Any] = {"k": k, "m": m, "rebuild_GBps": length / ours / 1e9, "encode_GBps": k * length / encode / 1e9}
        try:
            driver = importlib.import_module("pyeclib.ec_iface").ECDriver(k=k, m=m, ec_type="isa_l_rs_vand")
            fragments = driver.encode(data.tobytes())
            peer = seconds_of(partial(driver.reconstruct, fragments[1 : k + 1], [0]), 25)
            peer_encode = seconds_of(partial(driver.encode, data.tobytes()))
            found |= {"rebuild over isa-l": peer / ours, "encode over isa-l": peer_encode / encode}
        except ImportError:
            found["isa-l"] = "pyeclib is not installed"
        try:
            decoder = importlib.import_module("zfec").Decoder(k, k + m)
            blocks = [row.tobytes() for row in sources]
            peer = seconds_of(partial(decoder.decode, [*blocks[-1:], *blocks[:-1]], [k, *range(1, k)]))
            found["rebuild over zfec"] = peer / ours
        except ImportError:
            found["zfec"] = "not installed"
        print(json.dumps(found), flush=True)


def plans() -> None:
    """One degraded read, by code and technique."""
    for n, k in ((6, 4), (9, 6), (14, 10), (16, 12)):
        work = built_in(n, k, "uniform", "degraded-read", 1.0, 1, 64 << 20, 1 << 20, np.random.default_rng(1))
        found: dict[str, Any] = {"n": n, "k": k}
        for planner in (Ran(), FullRepair(), FullRepair("highs"), Rp(), SwitchTree()):
            planner.plan(work.problem)
            name = f"{planner.name} {getattr(planner, 'solver', '')}".strip()
            found[f"{name} [ms]"] = 1e3 * seconds_of(partial(planner.plan, work.problem), 51)
        print(json.dumps(found), flush=True)


def large() -> None:
    """A node of 100 000 stripes of (14, 10) over 20 nodes."""
    small = built_in(14, 10, "uniform", "node", 3.0, 20, 64 << 20, 1, np.random.default_rng(0))
    work = built_in(14, 10, "uniform", "node", 3.0, 100_000, 64 << 20, 1, np.random.default_rng(0))
    for planner in (Ran(), FullRepair(), Rp(), SwitchTree(), RepairBoost()):
        simulate(planner.plan(small.problem), paced=True)
        start = time.perf_counter()
        plan = planner.plan(work.problem)
        middle = time.perf_counter()
        run = simulate(plan, window=64)
        end = time.perf_counter()
        print(
            json.dumps({
                "technique": planner.name, "blocks": len(work.problem), "sub-repairs": len(plan), "plan [s]": middle - start,
                "simulate [s]": end - middle, "repair [s]": run.seconds, "over the plan": run.seconds / plan.least_s,
            }),
            flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:] or ("codes", "plans", "large"):
        {"codes": codes, "plans": plans, "large": large}[name]()
