"""How fast fused operators are simulated and really run on this machine, beside torch's gloo collectives in the same run.

python benchmarks/training_overlap.py prints seconds of: a simulated gemm_ar of 16,384 × 16,384 on 8 devices, 8,192 tiles each (goal 2 s); a
sweep of 100 shapes with the tuned plan (goal 60 s); and, on 4 ranks, a product of 512³ with its all-reduce and its reduce-scatter as tile
programs (goal 3 s, start included), and as NumPy's product with gloo's collective. Each is the median of 7; the ratio is gloo's seconds
over ours, so above 1 is faster than gloo. Last, one JSON object. Kernels for a GPU are in benchmarks/gpu/overlap.py.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import numpy as np

RANKS, SIDE, ROUNDS = 4, 512, 7


def peer(comm: Any) -> dict[str, float]:
    """Median seconds of a rank's product and its collective on gloo; the slowest rank counts."""
    rng = np.random.default_rng(comm.rank)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((SIDE, SIDE // RANKS), (SIDE // RANKS, SIDE)))
    total, mine = np.empty((SIDE, SIDE), np.float32), np.empty((SIDE // RANKS, SIDE), np.float32)
    seconds: dict[str, list[float]] = {"gemm_ar": [], "gemm_rs": []}
    for _ in range(ROUNDS + 2):
        for name, collective, out in (("gemm_ar", comm.allreduce, total), ("gemm_rs", comm.reduce_scatter, mine)):
            comm.barrier()
            start = time.perf_counter()
            collective(a @ b, out)
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[2:]) for name, values in seconds.items()}


def simulated() -> dict[str, float]:
    """Seconds of one large simulation and of a sweep."""
    from armillary.training.overlap import Gpu, Operator, OverlapWork, ParallelKittens, Tile, program_for, simulate

    program = program_for(Operator("gemm_ar", m=16384, n=16384, k=2048), Tile(), inter=True, fabric=True)
    simulate(program_for(Operator("gemm_ar", m=1024, n=1024, k=128), Tile(), inter=True, fabric=True), comm_sms=16)
    start, cpu = time.perf_counter(), time.process_time()
    simulate(program, comm_sms=20)
    found = {"gemm_ar 16384": time.perf_counter() - start, "gemm_ar 16384, CPU": time.process_time() - cpu}
    rng, gpu, ours = np.random.default_rng(0), Gpu.of("h100-80"), ParallelKittens()
    start, cpu = time.perf_counter(), time.process_time()
    for number in range(100):
        m, n, k = (128 * int(x) for x in rng.integers(8, 40, 3))
        op = ("gemm_rs", "ag_gemm", "gemm_ar")[number % 3]
        ours.plan(OverlapWork(Operator(op, m=m // 8 * 8, n=n, k=k // 4), gpu))
    return found | {"100 shapes": time.perf_counter() - start, "100 shapes, CPU": time.process_time() - cpu}


def real() -> dict[str, dict[str, float]]:
    """Seconds of tile programs and of the peer on the same ranks' number."""
    from armillary import comm
    from armillary.training.overlap import Operator, Tile, program_for, run

    theirs = comm.run("training_overlap:peer", ranks=RANKS, backend="gloo", timeout=300).values
    found = {}
    for op, inter in (("gemm_ar", True), ("gemm_rs", False)):
        program = program_for(Operator(op, devices=RANKS, m=SIDE, n=SIDE, k=SIDE // RANKS), Tile(), inter=inter, fabric=inter)
        inside, whole, errors = [], [], []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            ran = run(program, ranks=RANKS, sms=1, comm_sms=1 if inter else 0)
            whole.append(time.perf_counter() - start)
            inside.append(ran.seconds)
            errors.append(ran.error)
        gloo = max(one[op] for one in theirs)
        ours = statistics.median(inside)
        found[op] = {
            "ours": ours,
            "with start": statistics.median(whole),
            "gloo": gloo,
            "gloo over ours": gloo / ours,
            "error": max(errors),
        }
    return found


def main() -> None:
    """Prints every figure."""
    found: dict[str, Any] = {"simulated": simulated(), "real": real()}
    for name, seconds in found["simulated"].items():
        print(f"{name:24} {seconds:8.3f} s")
    for name, row in found["real"].items():
        print(f"{name:24} ours {1e3 * row['ours']:8.1f} ms, gloo {1e3 * row['gloo']:8.1f} ms, gloo over ours {row['gloo over ours']:.2f}, "
              f"with start {row['with start']:.2f} s, error {row['error']:.1e}")  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
