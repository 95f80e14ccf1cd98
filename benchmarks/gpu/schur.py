"""Schur complements of a cube inside others on a CUDA device: stepped against explicit, with transfers and with the factorisation.

python benchmarks/gpu/schur.py [sides…] prints a table and one JSON object. Needs PyTorch with CUDA.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch

from armillary import arrays
from armillary.numerics.schur import Explicit, SchurAssembler, Stepped
from armillary.numerics.schur.complement.method import Method
from armillary.numerics.schur.feti.decomposition import inside
from armillary.timing import timed

METHODS: dict[str, Method] = {
    "explicit": Explicit(),
    "stepped": Stepped(),
    "stepped, stairs": Stepped(syrk="stairs"),
    "stepped, chunks of 1000": Stepped(trsm_chunk=1000, syrk_chunk=2000),
    "stepped, minimum work": Stepped(partition="minimum-work", trsm_chunk=20, syrk_chunk=10),
    "stepped, no pruning": Stepped(prune="none"),
}


def seconds_of(work: Any, like: arrays.Array, repeats: int = 5) -> float:
    """Median seconds of `repeats` calls after a first one, the device idle on both sides."""
    work()
    return timed(work, like, min_seconds=0, min_calls=repeats).median


def main() -> None:
    """Times every method at the sides given, after checking one against SuperLU's own solves on the host."""
    sides = [int(n) for n in sys.argv[1:]] or [20, 25, 32]
    like = torch.zeros(0, dtype=torch.float64, device="cuda")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for side in sides:
        k, b = inside("heat", 3, side)
        start = time.perf_counter()
        host = SchurAssembler(k, b, "implicit").symbolic()
        symbolic_s = time.perf_counter() - start
        start = time.perf_counter()
        _ = host.update(host.k.data).factor.lower
        factor_s = time.perf_counter() - start
        probes = np.where(np.random.default_rng(side).uniform(size=(b.shape[0], 4)) < 0.5, -1.0, 1.0)
        expected = b @ host.factor.solve(b.T @ probes)
        x = np.ones(b.shape[0])
        implicit_s = seconds_of(lambda host=host, x=x: host.b @ host.factor.solve(host.b.T @ x), like)
        explicit_s = explicit_work = 0.0
        for name, method in METHODS.items():
            assembler = host.with_method(method).on(like)
            torch.cuda.reset_peak_memory_stats()
            f = assembler()
            error = float(np.linalg.norm(f.cpu().numpy() @ probes - expected) / np.linalg.norm(expected))
            peak = torch.cuda.max_memory_allocated()
            y = torch.ones(b.shape[0], dtype=torch.float64, device="cuda")
            apply_s = seconds_of(lambda f=f, y=y: f @ y, like)
            del f
            took = seconds_of(assembler, like)
            explicit_s, explicit_work = explicit_s or took, explicit_work or assembler.work.total
            row = {
                "ms": round(1e3 * took, 2), "over explicit": round(explicit_s / took, 2),
                "over explicit with factor": round((explicit_s + factor_s) / (took + factor_s), 2),
                "flop ratio": round(assembler.work.total / explicit_work, 4), "TFLOP/s": round(assembler.work.total / took / 1e12, 2),
                "apply [us]": round(1e6 * apply_s, 1),
                "pays off after": round(took / (implicit_s - apply_s), 1) if apply_s < implicit_s else None,
                "peak GB": round(peak / 1e9, 2), "error": error,
            }  # fmt: skip
            found[f"{side} {name}"] = row
            print(f"{side:3d} {name:26s}", row, flush=True)
        found[f"{side}"] = {
            "n": k.shape[0],
            "m": b.shape[0],
            "symbolic [s]": symbolic_s,
            "factor [s]": factor_s,
            "implicit apply [s]": implicit_s,
        }
        print(f"{side:3d}", found[f"{side}"], flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
