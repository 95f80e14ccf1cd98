"""Fields on a CUDA device: GB/s of original data each way, what that is worth on three links, and whether bytes equal the host's.

python benchmarks/gpu/fields_gpu.py [--rates | --sweep | --equality] prints tables and one JSON object. Needs PyTorch with CUDA and Triton.
Arrays and files lie on the device. Whole calls are timed between events, medians of seven, and the device's own work by the profiler; then
one figure with copies from and to pinned memory of the host. The claim: the better of `default` and `speed` has at least 0.9 of the better
fused kernel's gain over a link. `--rates` stops after these; `--sweep` also tries how programs are cut; `--equality` compares with the host
alone, on every case instead of two.
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
from armillary.compression.fields.advice.metrics import LINKS, overall_speedup
from armillary.compression.fields.gpu import fused, huffman, speed, sums

SHAPE = (1024, 512, 512)
REPEATS = 7
FUSED = ("fz-fused", "cuszp-fused")
PIPELINES = ("speed", "default", "quality", *FUSED)
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
        "batch of rows": (smooth[:120] * 40).astype(np.float32).reshape(3, 1, 1, -1),
        "rows": (smooth.reshape(131 * 127, 129) * 9).astype(np.float32),
        "one dimension": np.cumsum(noisy.reshape(-1).clip(-1, 1) * np.isfinite(noisy.reshape(-1))).astype(np.float32),
        "64-bit codes": wide,
        "64-bit codes 3-D": wide[: 64 * 64 * 64].reshape(64, 64, 64),
        "subnormal": (rng.standard_normal((40, 40, 40)) * 1e-41).astype(np.float32),
        "constant": np.full((64, 64, 64), 2.5, np.float32),
    }


def same_as_host(names: tuple[str, ...]) -> dict[str, str]:
    """Whether files and values equal the host's, for these cases and every pipeline, four bounds and small chunks too."""
    found = {}
    for name, x in cases().items():
        if names and name not in names:
            continue
        notes, there = [], torch.from_numpy(x).cuda()
        for pipeline in PIPELINES:
            for bound, mode, chunk in ((0.1, "abs", 1 << 26), (1e-3, "rel", 1 << 26), (1e-4, "rel", 1 << 18), (1e-43, "abs", 1 << 26)):
                with np.errstate(all="ignore"):
                    expected = fz.compress(x, bound, mode, pipeline, chunk_bytes=chunk)
                    data = gpu.compress(there, bound, mode, pipeline, chunk_bytes=chunk)
                    values = gpu.decompress(expected, like=there).cpu().numpy()
                if data.cpu().numpy().tobytes() != expected:
                    notes.append(f"{pipeline} {mode} {bound:g}: FILE DIFFERS")
                if values.tobytes() != fz.decompress(expected).tobytes():
                    notes.append(f"{pipeline} {mode} {bound:g}: VALUES DIFFER")
        found[name] = ", ".join(notes) or "equal"
        print(f"{name:26s} {found[name]}", flush=True)
    print(f"compared after {time.perf_counter() - BEGIN:.0f} s", flush=True)
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
    rows = sorted(profile.key_averages(), key=lambda row: -row.device_time_total)[:7]
    print(title, *(f"  {row.device_time_total / 1e3:8.3f} ms {row.count:4d}× {row.key[:60]}" for row in rows), sep="\n", flush=True)


def kernel_seconds(work: Callable[[], Any]) -> float:
    """Seconds that the device itself works for one call, copies on it included and the host's waiting left out; median of three."""
    found = []
    for _ in range(3):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            torch.cuda.synchronize()
        found.append(sum(row.self_device_time_total for row in profile.key_averages()) / 1e6)
    return statistics.median(found)


def rates(x: torch.Tensor, bound: float) -> dict[str, dict[str, float]]:
    """Ratio, GB/s each way and modelled gains of every pipeline, and the claim's quotients."""
    found = {}
    for pipeline in PIPELINES:
        data = gpu.compress(x, bound, "rel", pipeline)
        values = gpu.decompress(data)
        width = float(x.max()) - float(x.min())
        assert float((values.double() - x.double()).abs().max()) <= bound * width
        there, back = seconds(partial(gpu.compress, x, bound, "rel", pipeline)), seconds(partial(gpu.decompress, data))
        row = {"ratio": x.nbytes / len(data), "compress_GBps": x.nbytes / there / 1e9, "decompress_GBps": x.nbytes / back / 1e9}
        there_only, back_only = (
            kernel_seconds(partial(gpu.compress, x, bound, "rel", pipeline)),
            kernel_seconds(partial(gpu.decompress, data)),
        )
        row |= {"compress_kernels_GBps": x.nbytes / there_only / 1e9, "decompress_kernels_GBps": x.nbytes / back_only / 1e9}
        for link, bandwidth in LINKS.items():
            row[f"speedup_{link}"] = overall_speedup(bandwidth, row["ratio"], x.nbytes / there)
            row[f"kernel_speedup_{link}"] = overall_speedup(bandwidth, row["ratio"], x.nbytes / there_only)
        found[pipeline] = row
        print(f"{pipeline:12s} rel {bound:g}:", {k: round(v, 2) for k, v in row.items()}, flush=True)
    for what in ("speedup", "kernel_speedup"):
        quotients = {
            link: max(found[p][f"{what}_{link}"] for p in ("default", "speed")) / max(found[p][f"{what}_{link}"] for p in FUSED)
            for link in LINKS
        }
        found[f"better modular over better fused, {what}"] = quotients
        print(f"claim 2, at least 0.9, by {what}:", {k: round(v, 3) for k, v in quotients.items()}, flush=True)
    return found


def sweep(x: torch.Tensor) -> None:
    """Speed each way by how programs are cut."""

    def tried(pipeline: str, **settings: tuple[Any, int]) -> None:
        before = {name: getattr(module, name) for name, (module, _) in settings.items()}
        for name, (module, value) in settings.items():
            setattr(module, name, value)
        data = gpu.compress(x, 1e-3, "rel", pipeline)
        there, back = seconds(lambda: gpu.compress(x, 1e-3, "rel", pipeline)), seconds(lambda: gpu.decompress(data))
        shown = ", ".join(f"{name} {value}" for name, (_, value) in settings.items())
        print(f"{pipeline} {shown}: {x.nbytes / there / 1e9:7.1f} {x.nbytes / back / 1e9:7.1f} GB/s", flush=True)
        for name, (module, _) in settings.items():
            setattr(module, name, before[name])

    for tiles, warps in ((1, 1), (1, 2), (1, 4), (2, 4), (4, 8)):
        tried("speed", TILES=(speed, tiles), WARPS=(speed, warps))
    for depth, width in ((16, 64), (32, 64), (64, 32), (64, 64), (32, 128)):
        tried("speed", DEPTH=(sums, depth), WIDTH=(sums, width))
    for blocks, window in ((16, 32), (32, 32), (64, 32), (128, 32), (64, 128)):
        tried("cuszp-fused", BLOCKS=(fused, blocks), WINDOW=(fused, window))
    for window in (32, 128):
        tried("fz-fused", WINDOW=(fused, window))
    for lanes, decoded in ((512, 32), (1024, 32), (2048, 32), (1024, 64), (1024, 128)):
        tried("default", LANES=(huffman, lanes), DECODED=(huffman, decoded))


def main() -> None:
    """Speed, then what equals the host's: the host's own kernels take longest to compile."""
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    if "--equality" in sys.argv:
        print(json.dumps(found | {"equality": same_as_host(())}))
        return
    x = noise(SHAPE, 11 / 3, 0) * 50
    torch.cuda.synchronize()
    print(f"field ready after {time.perf_counter() - BEGIN:.0f} s", flush=True)
    for bound in (1e-2, 1e-3, 1e-4):
        found[f"rel {bound:g}"] = rates(x, bound)
    if "--rates" in sys.argv:
        print(json.dumps(found))
        return
    files = {pipeline: gpu.compress(x, 1e-3, "rel", pipeline) for pipeline in PIPELINES}
    for pipeline, data in files.items():
        kernels(partial(gpu.compress, x, 1e-3, "rel", pipeline), f"{pipeline}, compress:")
        kernels(partial(gpu.decompress, data), f"{pipeline}, decompress:")
    data = files["speed"]
    pinned, target = x.cpu().pin_memory(), torch.empty(len(data), dtype=torch.uint8, pin_memory=True)
    full = torch.empty(SHAPE, pin_memory=True)
    there = seconds(lambda: target.copy_(gpu.compress(pinned.to("cuda", non_blocking=True), 1e-3, "rel"), non_blocking=True))
    back = seconds(lambda: full.copy_(gpu.decompress(target.to("cuda", non_blocking=True)), non_blocking=True))
    copied = seconds(lambda: pinned.to("cuda", non_blocking=True))
    found["with host copies"] = {
        "compress_GBps": x.nbytes / there / 1e9,
        "decompress_GBps": x.nbytes / back / 1e9,
        "copy_GBps": x.nbytes / copied / 1e9,
    }
    print("speed with copies from and to pinned memory:", {k: round(v, 2) for k, v in found["with host copies"].items()}, flush=True)
    print(f"after {time.perf_counter() - BEGIN:.0f} s", flush=True)
    if "--sweep" in sys.argv:
        sweep(x)
    found["equality"] = same_as_host(("smooth float32", "noise, NaN, infinities"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
