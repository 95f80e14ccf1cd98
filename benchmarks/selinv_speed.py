"""Selected inverses: ratios to other ways in one run, what the kernels reach, and a year of a field of 500 points.

python benchmarks/selinv_speed.py [kernels] [ratios] [year] prints JSON, one object a line; all three without a word. Ratios: n=64,
b=100 to b=200 with an arrow of 4 against dense inversion, SciPy's splu with unit vectors (some of them, scaled up) and PARDISO where
pypardiso is installed. Year: n=365, b=500, a=10, seconds and peak memory on two cores.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  # its BLAS must be there before threads are limited
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary.numerics.selinv import BlockArrow, Dense, Takahashi, factor, selected_inverse
from armillary.numerics.selinv.blocks.kernels import cholesky, right_solve
from armillary.numerics.selinv.costs.work import whole_work
from armillary.numerics.selinv.inversion.method import Problem
from armillary.numerics.selinv.workload import random_blocks, spatio_temporal


def seconds_of(work: Callable[[], Any], repeats: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """The median call."""
    found = []
    for _ in range(repeats):
        start = clock()
        work()
        found.append(clock() - start)
    return statistics.median(found)


def least_cpu(work: Callable[[], Any], repeats: int = 7) -> float:
    """CPU seconds of the fastest call, which other work on the machine disturbs least."""
    return min(seconds_of(work, 1, time.process_time) for _ in range(repeats))


def kernels() -> dict[str, Any]:
    """Share of the peak of one core that each kernel reaches; the peak is taken from the fastest large product and 90 %."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    with threadpool_limits(1):
        large = rng.normal(size=(1500, 1500))
        peak = 2 * 1500**3 / least_cpu(lambda: large @ large) / 0.9
        found["core peak [GFLOP/s]"] = peak / 1e9
        for b in (36, 64, 100, 200):
            x = rng.normal(size=(b, b))
            a = x @ x.T + b * np.eye(b)
            factor_of = cholesky(a, "block")
            calls = max(5, 2 * 10**7 // b**3)

            def many(work: Callable[[], Any], calls: int = calls) -> float:
                def loop() -> None:
                    for _ in range(calls):
                        work()

                return least_cpu(loop) / calls

            found[f"b={b}"] = {
                "gemm": 2 * b**3 / many(partial(np.matmul, x, a)) / peak,
                "trsm": b**3 / many(partial(right_solve, factor_of, x)) / peak,
                "potrf": b**3 / 3 / many(partial(cholesky, a, "block")) / peak,
            }
        for side in (6, 8, 10):
            problem = Problem(spatio_temporal(64, side, 4, rng))
            problem.sparse  # noqa: B018
            whole = least_cpu(partial(Takahashi().invert, problem), 3)
            blocks = problem.blocks
            count = whole_work(blocks.n, blocks.b, blocks.a)
            serial = least_cpu(partial(_inverted, blocks))
            found[f"field of {side}×{side}"] = {
                "takahashi [s]": whole,
                "blocks [s]": serial,
                "their operations over peak": count.flops / serial / peak,
                "modelled over measured, blocks": count.seconds(peak) / serial,
            }
    return found


def _inverted(blocks: BlockArrow) -> None:
    selected_inverse(factor(blocks, check=False))


def ratios() -> dict[str, Any]:
    """Seconds of each way on the same matrix, and over those of the selected inverse."""
    found: dict[str, Any] = {}
    for side, a, dense in ((10, 4, True), (14, 4, False)):
        blocks = spatio_temporal(64, side, a, np.random.default_rng(0))
        found[f"field n=64 b={side * side}"] = _ratios(Problem(blocks), dense)
    found["random n=64 b=200"] = _ratios(Problem(random_blocks(64, 200, 4, np.random.default_rng(0))), False)
    return found


def _ratios(problem: Problem, dense: bool) -> dict[str, Any]:
    from scipy.sparse.linalg import splu

    matrix = problem.sparse.tocsc()
    n = matrix.shape[0]
    own = seconds_of(lambda: selected_inverse(factor(problem.blocks, check=False)), 3)
    times: dict[str, Any] = {"selected inverse": own}
    if dense:
        times["dense"] = seconds_of(lambda: Dense().invert(problem), 1)
    Takahashi().invert(Problem(random_blocks(3, 2, 1, np.random.default_rng(0))))
    times["takahashi"] = seconds_of(lambda: Takahashi().invert(problem), 1)
    start = time.perf_counter()
    lu = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    built = time.perf_counter() - start
    share = 128
    unit = np.zeros((n, share))
    unit[np.arange(share), np.arange(share)] = 1
    times["splu, unit vectors (128 timed)"] = built + seconds_of(lambda: lu.solve(unit), 1) * n / share
    try:
        import pypardiso  # type: ignore[import-not-found]
    except ImportError:
        times["pypardiso, unit vectors"] = "not installed"
    else:
        solver = pypardiso.PyPardisoSolver()
        start = time.perf_counter()
        solver.factorize(matrix.tocsr())
        built = time.perf_counter() - start
        times["pypardiso, unit vectors (128 timed)"] = built + seconds_of(lambda: solver.solve(matrix.tocsr(), unit), 1) * n / share
    return {name: s if isinstance(s, str) else {"seconds": round(s, 4), "over": round(s / own, 2)} for name, s in times.items()}


def year() -> dict[str, Any]:
    """n=365, b=500, a=10 in place."""
    rng = np.random.default_rng(0)
    n, b, a = 365, 500, 10
    core = random_blocks(2, b, a, rng)
    blocks = BlockArrow(np.repeat(core.diagonal[:1], n, 0), np.repeat(core.lower, n - 1, 0), np.repeat(core.arrow[:1], n, 0), core.tip * n)
    start = time.perf_counter()
    f = factor(blocks, overwrite=True, check=False)
    middle = time.perf_counter()
    x = selected_inverse(f, overwrite=True)
    end = time.perf_counter()
    flops = whole_work(n, b, a).flops
    return {
        "factor [s]": middle - start, "inverse [s]": end - middle, "seconds": end - start, "GFLOP/s": flops / (end - start) / 1e9,
        "blocks [GB]": blocks.nbytes / 1e9, "peak resident [GB]": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "smallest variance": float(x.diagonal().min()),
    }  # fmt: skip


def main() -> None:
    """Runs what is asked for."""
    wanted = sys.argv[1:] or ["kernels", "ratios", "year"]
    for name, work in (("kernels", kernels), ("ratios", ratios), ("year", year)):
        if name in wanted:
            print(json.dumps({name: work()}), flush=True)


if __name__ == "__main__":
    main()
