"""Requests that really run on the CPU or on a CUDA device, under each technique of scheduling/offloading.

python benchmarks/gpu/offloading.py [--rounds 5] [--largest 6000] [--keys 8000] prints, for products of matrices and for attention of
growing size, the mean latency, the share of GPU pods and the cost of every technique, as medians of rounds, and Gaia's gain over the CPU,
with one JSON object at the end. These are the cases real-cuda-matmul and real-cuda-attention of the arena: 30 sizes, three times over, one
request after another, and one real second counts as 100 s of the platform. Needs PyTorch with CUDA; without Numba the platform is plain
Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import types
from typing import Any

import numpy as np

if importlib.util.find_spec("numba") is None:
    # Loops that are not compiled decide the same, more slowly.
    plain: Any = types.ModuleType("armillary.kernels")
    plain.loop = plain.kernel = plain.part = plain.parallel_loop = lambda function=None, **options: function or (lambda inner: inner)
    sys.modules["armillary.kernels"] = plain

from armillary.scheduling.offloading.bandit import Bandit
from armillary.scheduling.offloading.cpu_only import CpuOnly
from armillary.scheduling.offloading.execution.real import RealWork, play_really
from armillary.scheduling.offloading.gaia import Gaia
from armillary.scheduling.offloading.gpu_only import GpuOnly
from armillary.scheduling.offloading.one_shot import OneShot
from armillary.scheduling.offloading.runtime.controller import Mode

TECHNIQUES: dict[str, Any] = {"cpu-only": CpuOnly, "gpu-only": GpuOnly, "one-shot": OneShot, "bandit": Bandit, "gaia": Gaia}
STEPS, SWEEPS, STRETCH = 30, 3, 100.0


def main() -> None:
    """Prints the table and the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=6000)
    parser.add_argument("--keys", type=int, default=8000)
    how = parser.parse_args()
    import torch

    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "threads": torch.get_num_threads()}
    for kind, largest in (("cuda-matmul", how.largest), ("cuda-attention", how.keys)):
        sizes = np.tile(np.rint(np.linspace(0, largest, STEPS)), SWEEPS)
        rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in TECHNIQUES}
        for turn in range(how.rounds):
            phase = 1.0 - float(np.random.default_rng(turn).random())
            for name, technique in TECHNIQUES.items():
                played, known = play_really(RealWork(sizes, kind, STRETCH, Mode.CPU_PREFERRED.rank, phase), technique().policy())
                pods = played.pod_s
                share = float(pods[1] / pods.sum())
                rows[name].append((1e3 * float(played.latency_s.mean()) / STRETCH, share, played.cost_usd(known.prices) / STRETCH))
        for name, seen in rows.items():
            latency, share, cost = (statistics.median(column) for column in zip(*seen, strict=True))
            found[f"{kind} {name}"] = {"latency_ms": latency, "gpu_share": share, "cost_usd": cost}
            print(f"{kind:<15} {name:<9} {latency:9.2f} ms  GPU {100 * share:5.1f} %  {1e6 * cost:8.1f} millionths of a dollar")
        gains = [100 * (1 - ours[0] / theirs[0]) for ours, theirs in zip(rows["gaia"], rows["cpu-only"], strict=True)]
        found[f"{kind} gain"] = gains
        print(f"{kind}: Gaia's mean latency is {min(gains):.0f} to {max(gains):.0f} % lower than on the CPU")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
