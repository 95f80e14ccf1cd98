"""Linear programs on a CUDA device: r2hpdhg with PyTorch and CuPy arrays beside the compiled steps of the host, to 1e-4, and a step's time.

python benchmarks/gpu/lp.py [nonzeros ...] prints a table and one JSON object. Needs PyTorch with CUDA; CuPy where it is there.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from typing import Any

import numba
import numpy as np

from armillary.numerics.lp.r2hpdhg import R2Hpdhg
from armillary.numerics.lp.workload import planted

TOLERANCE = 1e-4


def main() -> None:
    """One line for each size and place."""
    import torch

    every = os.cpu_count() or 1
    places: list[tuple[str, Any, int]] = [("host, 2 threads", None, 2), (f"host, {every} threads", None, every), ("torch", torch, 2)]
    if find_spec("cupy"):
        import cupy

        places.append(("cupy", cupy, 2))
    table = []
    print(f"{'nonzeros':>10} {'place':<18} {'seconds':>8} {'iterations':>10} {'ms/iteration':>12} {'of optimum':>10}")
    for nonzeros in [int(float(word)) for word in sys.argv[1:]] or [1_000_000, 10_000_000]:
        n = max(1000, int(0.03 * nonzeros))  # fifty to a row
        lp, x, _ = planted(n, np.random.default_rng(0), density=nonzeros / (n * (2 * n // 3)))
        best = float(lp.cost @ x)
        for name, xp, threads in places:
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            method = R2Hpdhg(tolerance=TOLERANCE, most=20_000)
            method.with_rng(np.random.default_rng(0)).solve(planted(300, np.random.default_rng(1))[0], xp=xp)
            found = method.with_rng(np.random.default_rng(0)).solve(lp, xp=xp)
            each = found.seconds / found.iterations
            off = abs(found.objective - best) / abs(best)
            table.append([lp.matrix.nnz, name, found.seconds, found.iterations, off, found.status])
            figures = f"{found.seconds:>8.3f} {found.iterations:>10} {1e3 * each:>12.4f} {off:>10.2e}"
            print(f"{lp.matrix.nnz:>10} {name:<18} {figures} {found.status}")
    print(json.dumps({"device": torch.cuda.get_device_name(), "rows": table}))


if __name__ == "__main__":
    main()
