"""Calibrates the cost model on a CUDA device: measures, fits, writes the file that `armillary/llm/presets/devices` holds.

python benchmarks/gpu/llm_calibrate.py [out.json] prints the fit, the error by operator, the copies and one JSON object. Needs PyTorch with
CUDA and NumPy; about a minute on an H200.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch

from armillary.llm.cost.calibration import GEMMS, Point
from armillary.llm.cost.device import Chip, chip
from armillary.llm.cost.measure import calibrate, write_calibration
from armillary.llm.cost.operators import attention_seconds, decode_attention_seconds, element_seconds, gemm_seconds

#: NVIDIA H200 data sheet, for machines without what reads the catalogue.
H200 = Chip("NVIDIA H200", (("bf16", 989.4e12), ("fp16", 989.4e12), ("fp8", 1978.9e12)), 4.8e12, 141e9, 132, 450e9)


def device(name: str) -> Chip:
    """What the device can do at most."""
    try:
        return chip(name)
    except ImportError:
        if name != H200.name:
            raise
        return H200


def predicted_ms(on: Chip, point: Point) -> float:
    """What the fitted model says of a measured kernel."""
    if point.op in GEMMS:
        return float(gemm_seconds(on, point.m, point.n, point.k)) * 1e3
    if point.op == "attention_prefill":
        return attention_seconds(on, point.flops or 0, point.moved or 0) * 1e3
    if point.op == "attention_decode":
        return decode_attention_seconds(on, point.moved or 0) * 1e3
    return float(element_seconds(on, point.op, point.moved or 0)) * 1e3


def main() -> None:
    out = sys.argv[1] if len(sys.argv) > 1 else "calibration.json"
    name = torch.cuda.get_device_name(0)
    start = time.perf_counter()
    on = device(name)
    content, fit = calibrate("cuda:0", on=on, said=lambda what: print(f"{time.perf_counter() - start:6.1f} s  {what}", flush=True))
    if name == H200.name:
        content["also"] = sorted({*content["also"], "h200-141", "H200", "H200 SXM5"})
    write_calibration(content, out)
    fitted = chip(on, fit.calibration)
    points = [Point(p["op"], p["M"], p["N"], p["K"], p["ms"], moved=p.get("bytes"), flops=p.get("flops")) for p in content["points"]]
    print(f"{name}, PyTorch {torch.__version__}, {content['driver']}; {len(points)} points in {time.perf_counter() - start:.0f} s")
    print(f"{'operator':<20}{'points':>7}{'mean |error|':>14}{'largest':>9}")
    by_op = {}
    for op in dict.fromkeys(p.op for p in points):
        errors = np.array([predicted_ms(fitted, p) / p.ms - 1 for p in points if p.op == op])
        by_op[op] = float(np.abs(errors).mean())
        print(f"{op:<20}{len(errors):>7}{by_op[op]:>14.1%}{errors[np.abs(errors).argmax()]:>+9.0%}")
    for what, rate in content["copies"].items():
        print(f"{what:<22}{rate / 1e9:>8.1f} GB/s")
    print(json.dumps({"fit": content["fit"], "error": content["error"], "by_operator": by_op, "copies": content["copies"]}))


if __name__ == "__main__":
    main()
