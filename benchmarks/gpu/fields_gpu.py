"""Fields on a CUDA device: bytes equal to the host's, then GB/s of original data each way.

python benchmarks/gpu/fields_gpu.py [--sweep] prints a table and one JSON object. Needs PyTorch with CUDA and Triton. Arrays and files lie
on the device, times are between events, medians of eleven; then one figure with copies from and to pinned memory of the host. `--sweep`
also tries how many tiles and warps a program takes.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from armillary.compression import fields as fz
from armillary.compression.fields import gpu
from armillary.compression.fields.gpu import speed

SHAPE = (1024, 512, 512)
REPEATS = 11
BEGIN = time.perf_counter()


def noise(shape: tuple[int, ...], slope: float, seed: int) -> torch.Tensor:
    """A random field with a power-law spectrum, unit variance, made on the device."""
    made = torch.Generator(device="cuda").manual_seed(seed)
    spectrum = torch.fft.rfftn(torch.randn(shape, device="cuda", generator=made))
    square = sum(
        (torch.fft.fftfreq(n, 1 / n, device="cuda") if i < len(shape) - 1 else torch.fft.rfftfreq(n, 1 / n, device="cuda"))
        .square()
        .reshape([-1 if j == i else 1 for j in range(len(shape))])
        for i, n in enumerate(shape)
    )
    assert isinstance(square, torch.Tensor)
    square.view(-1)[0] = math.inf
    spectrum *= square ** (-slope / 4)
    field = torch.fft.irfftn(spectrum, s=shape)
    return (field - field.mean()) / field.std()


def seconds(work: Callable[[], Any]) -> float:
    """Median time between events around `work`, which has run once before."""
    work()
    found = []
    for _ in range(REPEATS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        start.record()
        work()
        stop.record()
        stop.synchronize()
        found.append(start.elapsed_time(stop) / 1e3)
    return statistics.median(found)


def cases() -> dict[str, np.ndarray]:
    """Small arrays that ask for every path."""
    rng = np.random.default_rng(0)
    eps = 0.1
    middle = (2 * eps * (np.arange(-50000, 50000) + 0.5)).astype(np.float32)
    noisy = rng.standard_normal((70, 61, 53)).astype(np.float32)
    noisy[rng.random(noisy.shape) < 0.01] *= 1e6
    noisy.reshape(-1)[rng.choice(noisy.size, 999, replace=False)] = np.resize(np.array([np.nan, np.inf, -np.inf, 3e38, 1e-45, -0.0]), 999)
    smooth = np.sin(np.linspace(0, 9, 131))[:, None, None] * np.cos(np.linspace(0, 5, 127))[:, None] + np.linspace(0, 1, 129)
    wide = np.cumsum(rng.integers(-40, 40, 300000)).astype(np.float64) / 16 + 2.0**28
    return {
        "between codes": np.concatenate([np.nextafter(middle, np.float32(-9e9)), middle, np.nextafter(middle, np.float32(9e9))]),
        "noise, NaN, infinities": noisy,
        "smooth float32": (smooth * 40).astype(np.float32),
        "smooth float64": smooth * 40,
        "batch of four": (smooth[:120] * 40).astype(np.float32).reshape(4, 30, 127, 129),
        "rows": (smooth.reshape(131 * 127, 129) * 9).astype(np.float32),
        "one dimension": np.cumsum(noisy.reshape(-1).clip(-1, 1) * np.isfinite(noisy.reshape(-1))).astype(np.float32),
        "64-bit codes": wide,
        "64-bit codes 3-D": wide[: 64 * 64 * 64].reshape(64, 64, 64),
        "subnormal": (rng.standard_normal((40, 40, 40)) * 1e-41).astype(np.float32),
        "constant": np.full((64, 64, 64), 2.5, np.float32),
    }


def same_as_host() -> dict[str, str]:
    """Whether files and values equal the host's, for every case, two bounds and small chunks too."""
    found = {}
    for name, x in cases().items():
        notes = []
        for bound, mode, chunk in ((0.1, "abs", 1 << 26), (1e-3, "rel", 1 << 26), (1e-4, "rel", 1 << 18), (1e-43, "abs", 1 << 26)):
            with np.errstate(all="ignore"):
                expected = fz.compress(x, bound, mode, "speed", chunk_bytes=chunk)
                data = gpu.compress(torch.from_numpy(x).cuda(), bound, mode, chunk_bytes=chunk)
                values = gpu.decompress(data).cpu().numpy()
            if data.cpu().numpy().tobytes() != expected:
                notes.append(f"{mode} {bound:g}: FILE DIFFERS")
            if values.tobytes() != fz.decompress(expected).tobytes():
                notes.append(f"{mode} {bound:g}: VALUES DIFFER")
        found[name] = ", ".join(notes) or "equal"
        print(f"{name:26s} {found[name]}", flush=True)
    return found


def kernels(work: Callable[[], Any], title: str) -> None:
    """Where the time of one call goes."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"{title} no profile: {error}")
        return
    rows = sorted(profile.key_averages(), key=lambda row: -row.device_time_total)[:9]
    print(title, *(f"  {row.device_time_total / 1e3:8.3f} ms {row.count:4d}× {row.key[:60]}" for row in rows), sep="\n", flush=True)


def sweep(x: torch.Tensor) -> None:
    """Speed each way by tiles and warps of a program, and by the tile of prefix sums."""
    data = gpu.compress(x, 1e-3)
    before = speed.TILES, speed.WARPS, speed._DEPTH, speed._WIDTH
    for tiles, warps in ((1, 4), (2, 4), (4, 4), (2, 8), (4, 8), (8, 8)):
        speed.TILES, speed.WARPS = tiles, warps
        there, back = seconds(lambda: gpu.compress(x, 1e-3)), seconds(lambda: gpu.decompress(data))
        print(f"tiles {tiles} warps {warps}: {x.nbytes / there / 1e9:7.1f} {x.nbytes / back / 1e9:7.1f} GB/s", flush=True)
    speed.TILES, speed.WARPS = before[:2]
    for depth, width in ((16, 64), (32, 64), (64, 32), (64, 64), (32, 128), (128, 32)):
        speed._DEPTH, speed._WIDTH = depth, width
        back = seconds(lambda: gpu.decompress(data))
        print(f"sums {depth}×{width}: {x.nbytes / back / 1e9:7.1f} GB/s", flush=True)
    speed._DEPTH, speed._WIDTH = before[2:]


def main() -> None:
    """Equality first, then speed."""
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "equality": same_as_host()}
    x = noise(SHAPE, 11 / 3, 0) * 50
    host = x.cpu().numpy()
    print(f"fields ready after {time.perf_counter() - BEGIN:.0f} s", flush=True)
    expected = fz.compress(host, 1e-3, "rel", "speed")
    for bound in (1e-2, 1e-3, 1e-4):
        data = gpu.compress(x, bound, "rel")
        there, back = seconds(partial(gpu.compress, x, bound, "rel")), seconds(partial(gpu.decompress, data))
        row = {"ratio": x.nbytes / len(data), "compress_GBps": x.nbytes / there / 1e9, "decompress_GBps": x.nbytes / back / 1e9}
        if bound == 1e-3:
            row["file equals host's"] = data.cpu().numpy().tobytes() == expected
        found[f"speed@{bound:g}"] = row
        print(f"speed rel {bound:g}, {x.nbytes >> 20} MiB:", {k: round(v, 2) for k, v in row.items()}, flush=True)
    data = gpu.compress(x, 1e-3, "rel")
    kernels(lambda: gpu.compress(x, 1e-3, "rel"), "compress:")
    kernels(lambda: gpu.decompress(data), "decompress:")
    pinned, target = torch.from_numpy(host).pin_memory(), torch.empty(len(data), dtype=torch.uint8, pin_memory=True)
    full = torch.empty(SHAPE, pin_memory=True)
    there = seconds(lambda: target.copy_(gpu.compress(pinned.to("cuda", non_blocking=True), 1e-3, "rel"), non_blocking=True))
    back = seconds(lambda: full.copy_(gpu.decompress(target.to("cuda", non_blocking=True)), non_blocking=True))
    copied = seconds(lambda: pinned.to("cuda", non_blocking=True))
    found["with host copies"] = {
        "compress_GBps": x.nbytes / there / 1e9,
        "decompress_GBps": x.nbytes / back / 1e9,
        "copy_GBps": x.nbytes / copied / 1e9,
    }
    print("with copies from and to pinned memory:", {k: round(v, 2) for k, v in found["with host copies"].items()}, flush=True)
    if "--sweep" in sys.argv:
        sweep(x)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
