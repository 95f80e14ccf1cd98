"""Fields against SZ3, zfp and Blosc2 on this machine: ratio and throughput in one run, two threads, float32.

python benchmarks/fields_speed.py [field[,field…] [side]] prints a table, ratios of throughput over SZ3's interpolation and one JSON
object. Rounds of all compressors take turns, so that a busy machine slows all of them; the median counts. Peers that are not installed
are left out by name.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.util import find_spec

import numpy as np

from armillary.compression.fields.advice.metrics import errors
from armillary.compression.fields.arena import THREADS, fields
from armillary.compression.fields.stages.bounds import absolute_bound, finite_span
from armillary.compression.fields.workload import DIMENSIONS, field

ROUNDS = 5
SETTINGS = [
    ("sz3", {"algorithm": "INTERP"}), ("sz3", {"algorithm": "INTERP_LORENZO"}), ("sz3", {"algorithm": "INTERP", "openmp": True}),
    ("fzmod-speed", {}), ("fzmod-default", {}), ("fzmod-default", {"secondary": "zstd"}), ("fzmod-quality", {}), ("fz-fused", {}),
    ("cuszp-fused", {}), ("zfp", {}), ("bitround+zstd", {}), ("blosc2-shuffle-zstd", {}), ("zstd", {}),
]  # fmt: skip
NEEDS = {"sz3": "pysz", "zfp": "zfpy", "blosc2-shuffle-zstd": "blosc2"}


def measure(x: np.ndarray, bound: float) -> dict[str, dict[str, float]]:
    """Ratio, MB/s each way, largest error over the bound and PSNR of every compressor."""
    eps = absolute_bound("rel", bound, finite_span(x))
    found = {}
    makers = {}
    for name, settings in SETTINGS:
        if find_spec(NEEDS.get(name, "numpy")) is None:
            print(f"{name}: {NEEDS[name]} is not installed; left out")
            continue
        label = " ".join([name, *(f"{k}={v}" for k, v in settings.items())])
        made = fields.make(name, settings)
        data = made.pack(x, eps, THREADS)
        back = made.unpack(data, THREADS)
        largest, psnr, _ = errors(x, back)
        found[label] = {"ratio": x.nbytes / len(data), "max_error": largest / eps, "psnr_dB": psnr}
        makers[label] = (made, data)
    seconds: dict[str, tuple[list[float], list[float]]] = {label: ([], []) for label in makers}
    for _ in range(ROUNDS):
        for label, (made, data) in makers.items():
            start = time.perf_counter()
            made.pack(x, eps, THREADS)
            middle = time.perf_counter()
            made.unpack(data, THREADS)
            seconds[label][0].append(middle - start)
            seconds[label][1].append(time.perf_counter() - middle)
    for label, (there, back_again) in seconds.items():
        found[label]["compress_MBps"] = x.nbytes / float(np.median(there)) / 1e6
        found[label]["decompress_MBps"] = x.nbytes / float(np.median(back_again)) / 1e6
    return found


def main() -> None:
    """Every field asked for at three bounds."""
    names = sys.argv[1].split(",") if len(sys.argv) > 1 else ["turbulence", "climate-T"]
    side = int(sys.argv[2]) if len(sys.argv) > 2 else 192
    shapes = {"1": (side**3,), "2": (int(side**1.5),) * 2, "3": (side,) * 3}
    table = {}
    for name in names:
        x = field(name, shapes[DIMENSIONS[name]], np.random.default_rng(0))
        for bound in (1e-2, 1e-3, 1e-4):
            found = measure(x, bound)
            table[f"{name}@{bound:g}"] = found
            peer = found.get("sz3 algorithm=INTERP", {})
            print(f"\n{name}@{bound:g}, {x.nbytes / 1e6:.0f} MB: ratio, MB/s there and back, over SZ3 INTERP, error/bound, PSNR")
            for label, row in found.items():
                over = [row[k] / peer[k] if peer else float("nan") for k in ("compress_MBps", "decompress_MBps")]
                speeds = f"{row['compress_MBps']:8.0f} {row['decompress_MBps']:8.0f} {over[0]:6.2f}× {over[1]:6.2f}×"
                print(f"{label:34} {row['ratio']:8.2f} {speeds} {row['max_error']:.3f} {row['psnr_dB']:.1f}")
    print(json.dumps(table))


if __name__ == "__main__":
    main()
