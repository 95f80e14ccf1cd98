"""Tall QR on this machine: 10^6 x 64 against SciPy, NumPy and Dask in one run, and 4*10^6 x 64 with its peak memory.

python benchmarks/qr_speed.py [rows [rows of the large one]] prints ratios over the others and one JSON object. Two BLAS threads.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.linalg
from dask.base import compute
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary.numerics.qr import tall_qr

COLUMNS, REPEATS, THREADS = 64, 3, 2
OURS = ("auto", "lu-cholqr2", "cholqr2", "scholqr3", "tsqr", "randomized-cholqr")


def best(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of some calls: the machine may be shared."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def against_others(rows: int) -> dict[str, float]:
    """Seconds by method; the others once or twice, as they take long."""
    a = np.random.default_rng(0).normal(size=(rows, COLUMNS))
    found = {name: best(lambda name=name: tall_qr(a, None, name)) for name in OURS}  # type: ignore[misc]
    found["scipy.linalg.qr"] = best(lambda: scipy.linalg.qr(a, mode="economic", check_finite=False), 2)
    found["numpy.linalg.qr"] = best(lambda: np.linalg.qr(a), 1)
    blocks = da.from_array(a, chunks=(-(-rows // 8), COLUMNS))  # type: ignore[no-untyped-call]

    def with_dask() -> None:
        # One BLAS thread for each of Dask's.
        with threadpool_limits(1), dask.config.set(scheduler="threads", num_workers=THREADS):
            compute(*da.linalg.tsqr(blocks))  # type: ignore[no-untyped-call]

    found["dask.array.linalg.tsqr"] = best(with_dask, 2)
    return found


def large(rows: int) -> dict[str, float]:
    """Seconds and peak memory of LU-CholeskyQR2, in copies of A beyond A itself."""
    a = np.random.default_rng(0).standard_normal((rows, COLUMNS))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    start = time.perf_counter()
    q, r, _ = tall_qr(a, None, "lu-cholqr2")
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    some = slice(0, 100_000)
    residual = float(np.linalg.norm(a[some] - q[some] @ r) / np.linalg.norm(a[some]))
    orthogonality = float(np.linalg.norm(q.T @ q - np.eye(COLUMNS)))
    return {"seconds": seconds, "extra copies": (peak - before) / a.nbytes, "orthogonality": orthogonality, "residual": residual}


def main() -> None:
    """Measures and prints; the large one first, so that its peak of memory is its own."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    more = int(sys.argv[2]) if len(sys.argv) > 2 else 4_000_000
    with threadpool_limits(THREADS):
        found: dict[str, Any] = {f"{more} x {COLUMNS}": large(more)}
        print(found)
        seconds = against_others(rows)
    for name, value in seconds.items():
        print(f"{name:24s} {value:8.3f} s   lu-cholqr2 is {value / seconds['lu-cholqr2']:6.2f} times as fast")
    found[f"{rows} x {COLUMNS}"] = seconds
    print(json.dumps(found))


if __name__ == "__main__":
    main()
