"""Gradients of NumPy kernels beside JAX in one run, and the sizes that the arena promises.

python benchmarks/training_autodiff.py [kernel ...] prints, for each kernel at NPBench's size S, seconds of dace-ad and how many times
longer both ports of JAX take; then seidel_2d with 40 steps of 400 × 400 (goal 0.5 s), jacobi_2d with 100 steps of 1000 × 1000 within
256 MiB (goal 1 GiB of peak memory), and seconds of the analysis. Last, one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np

from armillary.arena import NotForThisCase
from armillary.training.autodiff import DaceAd, Jax, JaxScan, built_in, dace_ad
from armillary.training.autodiff.kernels.catalogue import KERNELS
from armillary.training.autodiff.kernels.stencils import jacobi_2d, seidel_2d

KERNELS_BY_DEFAULT = ("seidel_2d", "durbin", "trisolv", "lu", "gramschmidt", "jacobi_2d", "cavity_flow", "hdiff", "gemm", "conv2d_bias")
SEED = 0


def beside_jax(names: list[str]) -> dict[str, dict[str, float]]:
    """Seconds by kernel and tool."""
    found: dict[str, dict[str, float]] = {}
    for name in names:
        problem = built_in(name, "S", np.random.default_rng(SEED))
        row: dict[str, float] = {}
        for tool, technique in (("dace-ad", DaceAd()), ("jax", Jax()), ("jax-scan", JaxScan())):
            try:
                row[tool] = technique.measure(problem).gradient_s
            except NotForThisCase as declined:
                print(f"{name}: {tool}: {declined}")
        found[name] = row
        ratios = "  ".join(f"{tool} {seconds / row['dace-ad']:8.2f} ×" for tool, seconds in row.items() if tool != "dace-ad")
        print(f"{name:14} dace-ad {row['dace-ad'] * 1e3:9.3f} ms  {ratios}")
    return found


def warm(gradient: Any, *arguments: Any) -> float:
    """Seconds of the second call."""
    gradient(*arguments)
    begin = time.perf_counter()
    gradient(*arguments)
    return time.perf_counter() - begin


def goals() -> dict[str, float]:
    """The sizes of the goals."""
    rng = np.random.default_rng(SEED)
    seidel = dace_ad.grad(seidel_2d, "A", output="A")
    found = {"seidel_2d 400, 40 steps [s]": warm(seidel, 40, 400, rng.random((400, 400)))}
    prepared = seidel.prepare(seidel.bind((40, 400, rng.random((400, 400))), {}))
    found["analysis of seidel_2d [s]"] = prepared.analysis_s
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    jacobi = dace_ad.grad(jacobi_2d, ("A", "B"), output="A", memory="256MiB")
    found["jacobi_2d 1000, 100 steps [s]"] = warm(jacobi, 100, rng.random((1000, 1000)), rng.random((1000, 1000)))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["jacobi_2d peak of the process [GiB]"] = after / 2**20
    found["jacobi_2d more than before [GiB]"] = (after - before) / 2**20
    return found


def main() -> None:
    """Prints every figure."""
    names = sys.argv[1:] or list(KERNELS_BY_DEFAULT)
    unknown = [name for name in names if name not in KERNELS]
    if unknown:
        sys.exit(f"unknown kernel {unknown[0]}; known: {', '.join(KERNELS)}")
    found = {"goals": goals(), "kernels": beside_jax(names)}
    for name, value in found["goals"].items():
        print(f"{name:40} {value:8.3f}")
    for rival in ("jax", "jax-scan"):
        ratios = [row[rival] / row["dace-ad"] for row in found["kernels"].values() if rival in row]
        if ratios:
            print(f"{rival:10} mean {np.mean(ratios):8.2f} ×, geometric {np.exp(np.mean(np.log(ratios))):8.2f} ×")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
