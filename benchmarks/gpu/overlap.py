"""Fused products and collectives of virtual devices on one CUDA device: right results, the price of signals, and seconds beside torch's.

python benchmarks/gpu/overlap.py [sizes…] [--devices 4] [--comm 4,8,16,32] prints a table and one JSON object. Needs PyTorch with CUDA and
Triton. For each size N (default 2048 4096 8192; M = N, K = N / devices, bfloat16) it times, in milliseconds by CUDA events, as the median
of interleaved rounds: `products`, the same Triton tiles without communication, and torch's; `gemm_rs` and `gemm_ar`, fused; and, as the
peer, torch's products with the reduction after them (`torch.matmul`, then a sum over the devices). Results are compared with torch in
float64 on a sample of rows; gemm_ar must be equal on all virtual devices and in three runs, bit for bit; ragged shapes are tried too. Links
do not exist here: everything crosses the memory of one GPU, so this shows correctness and overheads, not NVLink's overlap.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import torch

from armillary.errors import InputError
from armillary.training.overlap.gpu import kernels
from armillary.training.overlap.gpu.virtual_devices import Tile, gemm_ar, gemm_rs, product, signal_seconds

ROUNDS = 9


def milliseconds(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median milliseconds of each, in interleaved rounds after two that are not counted."""
    event: Any = torch.cuda.Event
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS + 2):
        for name, work in works.items():
            start, end = event(enable_timing=True), event(enable_timing=True)
            torch.cuda.synchronize()
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            if number >= 2:
                found[name].append(start.elapsed_time(end))
    return {name: statistics.median(values) for name, values in found.items()}


def operands(devices: int, m: int, n: int, k: int, dtype: Any = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
    """Random operands of every device."""
    rng = torch.Generator("cuda").manual_seed(m + n + k)
    a = torch.randn(devices, m, k, device="cuda", generator=rng).to(dtype)
    return a, torch.randn(devices, k, n, device="cuda", generator=rng).to(dtype)


def error(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest error of a sample of rows, relative to the largest element; `found` is M × N."""
    rows = torch.linspace(0, a.shape[1] - 1, min(16, a.shape[1]), device="cuda").long()
    exact = torch.einsum("dmk,dkn->mn", a[:, rows].double(), b.double())
    return float((found[rows].double() - exact).abs().max() / exact.abs().max())


def checks(devices: int) -> dict[str, float | bool]:
    """Errors on whole and ragged shapes, and equal bits of gemm_ar on all devices and in three runs."""
    worst: dict[str, float | bool] = {}
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        for m, n, k in ((512, 512, 256), (devices * 100, 300, 70), (devices * 129, 1000, 515), (devices, 1, 1)):
            a, b = operands(devices, m, n, k, dtype)
            rs = gemm_rs(a, b).flatten(0, 1)
            runs = [gemm_ar(a, b, comm_sms=c) for c in (devices, 2 * devices, 2 * devices)]
            same = all(torch.equal(run[0], other) for run in runs for other in (*run[1:], runs[0][0]))
            worst[f"gemm_rs {name}"] = max(float(worst.get(f"gemm_rs {name}", 0.0)), error(rs, a, b))
            worst[f"gemm_ar {name}"] = max(float(worst.get(f"gemm_ar {name}", 0.0)), error(runs[0][0], a, b))
            worst["gemm_ar is equal on all devices and in all runs"] = same and bool(
                worst.get("gemm_ar is equal on all devices and in all runs", True)
            )
    try:
        gemm_ar(*operands(devices, 128, 128, 64), programs=100_000)
        worst["a grid beyond the SMs is refused"] = False
    except InputError:
        worst["a grid beyond the SMs is refused"] = True
    return worst


def sized(size: int, devices: int, comm: list[int]) -> dict[str, Any]:
    """Milliseconds and errors at one size."""
    a, b = operands(devices, size, size, size // devices)
    total = torch.empty(devices, size, size, dtype=a.dtype, device="cuda")

    def peer_scatter() -> Any:
        return torch.matmul(a, b).view(devices, devices, size // devices, size).sum(0, dtype=torch.float32)

    def peer_reduce() -> Any:
        total[:] = torch.matmul(a, b).sum(0, dtype=torch.float32)[None]
        return total

    works: dict[str, Callable[[], Any]] = {
        "products, torch": lambda: torch.matmul(a, b),
        "products, our tiles": lambda: [product(x, y) for x, y in zip(a, b, strict=True)],
        "gemm_rs, torch": peer_scatter,
        "gemm_rs, fused": lambda: gemm_rs(a, b),
        "gemm_rs, fused, 128 × 128": lambda: gemm_rs(a, b, tile=Tile(n=128, warps=4, stages=4)),
        "gemm_ar, torch": peer_reduce,
    }
    for count in comm:
        works[f"gemm_ar, fused, {count} SMs"] = lambda count=count: gemm_ar(a, b, comm_sms=count)
    found: dict[str, Any] = {"ms": milliseconds(works)}
    found["error"] = {"gemm_rs": error(gemm_rs(a, b).flatten(0, 1), a, b), "gemm_ar": error(gemm_ar(a, b)[0], a, b)}
    flops = 2.0 * devices * size * size * (size // devices)
    found["TFLOP/s"] = {name: round(flops / ms / 1e9, 1) for name, ms in found["ms"].items()}
    best = min(ms for name, ms in found["ms"].items() if name.startswith("gemm_ar, fused"))
    found["torch over fused"] = {
        "gemm_rs": found["ms"]["gemm_rs, torch"] / min(ms for name, ms in found["ms"].items() if name.startswith("gemm_rs, fused")),
        "gemm_ar": found["ms"]["gemm_ar, torch"] / best,
    }  # fmt: skip
    return found


def launch_seconds() -> float:
    """Seconds of an empty kernel on the device, one after another in a graph, so that the host's part is left out."""
    x = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernels.nothing_kernel[(1,)](x, num_warps=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            kernels.nothing_kernel[(1,)](x, num_warps=1)
    return milliseconds({"launches": graph.replay})["launches"] / 1e6


def main() -> None:
    """Checks, then times every size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[2048, 4096, 8192])
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--comm", default="4,8,16,32")
    args = parser.parse_args()
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "devices": args.devices,
        "checks": {str(count): checks(count) for count in sorted({1, 2, args.devices})},
    }  # fmt: skip
    print("checks", found["checks"], flush=True)
    found["signal_us"] = 1e6 * signal_seconds()
    found["launch_us"] = 1e6 * launch_seconds()
    print(f"signal {found['signal_us']:.2f} µs, launch {found['launch_us']:.2f} µs", flush=True)
    for size in args.sizes:
        row = found[str(size)] = sized(size, args.devices, [int(c) for c in args.comm.split(",")])
        for name, ms in row["ms"].items():
            print(f"{size:6d} {name:28} {ms:9.3f} ms {row['TFLOP/s'][name]:8.1f} TFLOP/s", flush=True)
        print(f"{size:6d} torch over fused {row['torch over fused']}, errors {row['error']}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
