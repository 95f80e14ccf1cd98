"""Tall QR on a CUDA device: LU-CholeskyQR2 and CholeskyQR2 against the library's own QR; orthogonality is checked.

python benchmarks/gpu/qr.py [rows…] prints a table and one JSON object. Needs PyTorch with CUDA; CuPy is measured too where it is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from armillary import arrays
from armillary.numerics.qr import tall_qr
from armillary.timing import timed

COLUMNS = 64
OURS = ("auto", "lu-cholqr2", "cholqr2", "scholqr3", "randomized-cholqr", "tsqr")


def ill_conditioned(rows: int) -> torch.Tensor:
    """A matrix of condition about 1e12: two halves of the columns that nearly agree."""
    a = torch.randn(rows, COLUMNS, dtype=torch.float64, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    a[:, COLUMNS // 2 :] = a[:, : COLUMNS // 2] + 1e-12 * a[:, COLUMNS // 2 :]
    return a


def row(a: Any, method: str, repeats: int = 5) -> dict[str, Any]:
    """Milliseconds (median of five), orthogonality, residual, what was taken and the bytes that left the device."""
    try:
        before = arrays.copied_bytes()
        q, r, info = tall_qr(a, None, method)
        copied = arrays.copied_bytes() - before
    except ArithmeticError as breakdown:
        return {"broke down": str(breakdown)}
    xp = arrays.namespace(a)
    eye = xp.eye(COLUMNS, dtype=a.dtype, device=arrays.device_of(a))
    orthogonality = float(arrays.norm(q.T @ q - eye))
    q @= r
    q -= a
    residual = float(arrays.norm(q) / arrays.norm(a))
    del q, r
    seconds = timed(lambda: tall_qr(a, None, method), a, min_seconds=0, min_calls=repeats).median
    return {
        "ms": round(1e3 * seconds, 3), "orthogonality": orthogonality, "residual": residual, "taken": info.method,
        "growth": round(info.growth, 1), "bytes to host": copied,
    }  # fmt: skip


def milliseconds(work: Callable[[], Any], repeats: int = 15) -> float:
    """Milliseconds of the device for one call of `work`, from events around many."""
    for _ in range(3):
        work()
    event: Any = torch.cuda.Event
    start, end = event(enable_timing=True), event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return round(float(start.elapsed_time(end)) / repeats, 4)


def parts(a: torch.Tensor) -> dict[str, Any]:
    """The device's milliseconds for each kind of kernel behind lu-cholqr2 and cholqr2."""
    from armillary.numerics.qr.factors import cuda_factors

    passes = cuda_factors.Passes(a, pivoted=True)
    passes.triangles()
    passes.finish()
    sample = cuda_factors._sample(*a.shape, a.device)
    found = {
        "divide and multiply": milliseconds(lambda: passes._divide(a, 0, True)),
        "divide": milliseconds(lambda: passes._divide(a, 0, False)),
        "multiply": milliseconds(lambda: passes._multiply(a)),
        "sum and Cholesky factor": milliseconds(partial(passes._factor, 1, passes._multiply(a))),
    }
    padded = 1 << (len(sample) - 1).bit_length()
    return found | {"LU of the sample": milliseconds(lambda: passes._pivot(a, sample, padded)), "copy": milliseconds(a.clone)}


def main() -> None:
    """Times every method on the sizes given."""
    sizes = [int(n) for n in sys.argv[1:]] or [1 << 20, 10_000_000]
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}

    def note(name: str, value: dict[str, Any]) -> None:
        found[name] = value
        print(f"{name:44s}", value, flush=True)

    for rows in sizes:
        a = torch.randn(rows, COLUMNS, dtype=torch.float64, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
        for method in OURS:
            note(f"{rows} torch {method}", row(a, method, 2 if method == "tsqr" else 5))
        if find_spec("triton"):
            note(f"{rows} torch, device's ms by kernel", parts(a))
        library = partial(torch.linalg.qr, a, mode="reduced")
        library()
        native = timed(library, a, min_seconds=0, min_calls=2).median
        note(f"{rows} torch.linalg.qr", {"ms": round(1e3 * native, 3)})
        ours, two = found[f"{rows} torch lu-cholqr2"], found[f"{rows} torch cholqr2"]
        note(
            f"{rows} ratios", {"over torch.linalg.qr": round(1e3 * native / ours["ms"], 2), "of cholqr2": round(ours["ms"] / two["ms"], 2)}
        )
        assert ours["orthogonality"] < 1e-12, "Q is not orthogonal"
        del a
        a = ill_conditioned(rows)
        for method in ("auto", "lu-cholqr2", "cholqr2", "scholqr3", "randomized-cholqr"):
            note(f"{rows} torch, condition 1e12, {method}", row(a, method))
        assert found[f"{rows} torch, condition 1e12, lu-cholqr2"]["orthogonality"] < 1e-12, "Q is not orthogonal"
        if find_spec("cupy"):
            cupy = import_module("cupy")
            torch.cuda.empty_cache()
            same = cupy.from_dlpack(a)
            for method in ("lu-cholqr2", "scholqr3"):
                note(f"{rows} cupy, condition 1e12, {method}", row(same, method))
            del same
        del a
        torch.cuda.empty_cache()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
