"""Float64 products from int8 units on a CUDA device: speed over the library's float64, accuracy, and bits equal to the host's.

python benchmarks/gpu/gemm.py [sizes…] prints a table and one JSON object. Needs PyTorch with CUDA and Triton.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import numpy as np
import torch

from armillary.numerics.gemm import Adp, Float32, Native, Ozaki2, accuracy
from armillary.numerics.gemm.bf16x9 import Bf16x9
from armillary.numerics.gemm.digits import cuda_kernels
from armillary.numerics.gemm.products.method import Method
from armillary.numerics.gemm.tf32x3 import Tf32x3
from armillary.numerics.gemm.workload import FAMILIES, pair
from armillary.timing import timed

METHODS: dict[str, Method] = {
    "native": Native(),
    "adp": Adp(),
    "adp at 55 bits": Adp(slices=7),
    "adp at 39 bits": Adp(slices=5),
    "ozaki2, its own number": Ozaki2(),
    "ozaki2, 14 moduli": Ozaki2(moduli=14),
    "ozaki2, 15 moduli": Ozaki2(moduli=15),
    "ozaki2, 15 moduli, accurate": Ozaki2(moduli=15, scaling="accurate"),
    "float32": Float32(),
    "bf16x9": Bf16x9(),
    "tf32x3": Tf32x3(),
}


def same_as_host() -> dict[str, float]:
    """The largest difference from the host's answer in units of u·(|A||B|), by method, over all families."""
    rng, worst = np.random.default_rng(0), {}
    for family in FAMILIES:
        if family in ("infinite", "not-a-number"):
            continue
        for n in (40, 257):
            a, b = pair(family, n, rng)
            on_device = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
            for method in (Adp(max_slices=12), Ozaki2(), Ozaki2(moduli=18), Ozaki2(scaling="accurate")):
                host, info = method.multiply(a, b)
                device, device_info = method.multiply(*on_device)
                assert (info.slices, info.span, info.fallback) == (device_info.slices, device_info.span, device_info.fallback), (family, n)
                difference = np.abs(host - device.cpu().numpy())
                size = 2.0**-53 * (np.abs(a) @ np.abs(b)) + 2.0**-1000
                name = f"{type(method).__name__} {getattr(method, 'scaling', '')}".strip()
                if not info.fallback:
                    worst[name] = max(worst.get(name, 0.0), float((difference / size).max()))
    return worst


def main() -> None:
    """Times every method at the sizes given."""
    sizes = [int(n) for n in sys.argv[1:]] or [2048, 8192]
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "differs from host by [u]": same_as_host()}
    for n in sizes:
        rng = np.random.default_rng(n)
        a, b = pair("uniform", n, rng)
        left, right = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
        rows = np.sort(rng.choice(n, 4, replace=False))
        native = None
        for name, method in METHODS.items():
            product, info = method.multiply(left, right)
            seconds = timed(partial(method.multiply, left, right), left, min_seconds=0).median
            native = native or seconds
            error = accuracy(product.cpu().numpy()[rows], a[rows], b).error_u
            row = {
                "ms": round(1e3 * seconds, 3), "TFLOP/s": round(2 * n**3 / seconds / 1e12, 2), "over native": round(native / seconds, 3),
                "error [u]": round(error, 3), "products": info.gemms, "overhead": round(info.overhead_s / seconds, 4), "span": info.span,
            }  # fmt: skip
            found[f"{n} {name}"] = row
            print(f"{n:6d} {name:26s}", row, flush=True)
        for block in (8, 16, 64):
            look = partial(cuda_kernels.look, left, right, block)
            look()
            found[f"{n} look, blocks of {block}, ms"] = round(1e3 * timed(look, left, min_seconds=0).median, 3)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
