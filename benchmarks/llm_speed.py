"""How fast the cost model answers: reading a config, counting, building tables, asking them.

python benchmarks/llm_speed.py prints a table with the targets.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.kernels import loop
from armillary.llm import Batch, Model, Plan, StepCost, chip, fits, flops, volumes
from armillary.llm.model.shapes import PRESETS
from armillary.timing import timed


@loop
def ask(tokens: Any, body: Any, context_s: float, calls: int) -> float:
    """As many decode prices as `calls`, from the arrays."""
    total = 0.0
    for i in range(calls):
        n = float(1 + i % 300)
        j = np.searchsorted(tokens, n, side="right")
        low = tokens[j - 1]
        total += body[j - 1] + (body[j] - body[j - 1]) * (n - low) / (tokens[j] - low) + context_s * n * 1000
    return total


def row(what: str, seconds: float, target: str) -> None:
    value = f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
    print(f"{what:<48}{value:>12}   target {target}")


def main() -> None:
    importing = [sys.executable, "-X", "importtime", "-c", "import armillary.llm"]
    lines = subprocess.run(importing, capture_output=True, text=True, check=True).stderr.splitlines()
    row("import armillary.llm", int(next(x for x in lines if x.endswith(" armillary.llm")).split("|")[1]) / 1e6, "60 ms")
    path, model = PRESETS / "models" / "deepseek-v3.json", Model.preset("deepseek-v3")
    plan, batch = Plan(dp=8, tp=8, pp=4, ep=8, sequence_parallel=True), Batch(64, 4096)
    on = chip("h200")
    each: list[tuple[str, Callable[[], object], str]] = [
        ("Model.from_config, DeepSeek-V3", lambda: Model.from_config(path), "2 ms"),
        ("params, cached", model.params, "20 µs"),
        ("params_by(mlp)", lambda: model.params_by("mlp"), "20 µs"),
        ("flops of 16 segments", lambda: flops(model, [(1, 1000)] * 16), "20 µs"),
        ("volumes, five kinds of parallelism", lambda: volumes(model, plan, batch), "20 µs"),
        ("fits", lambda: fits(model, plan, on, batch), ""),
        ("StepCost.build, DeepSeek-V3 on 8 devices", lambda: StepCost.build(model, on, tp=8), "50 ms"),
    ]
    for what, work, target in each:
        row(what, timed(work).median, target)
    cost = StepCost.build("llama-3-8b", on)
    count = 100_000
    row(
        "StepCost.decode from Python",
        timed(lambda: [cost.decode(i & 255, 1000 * i) for i in range(count)]).median / count,
        "3.3 µs (300 k/s)",
    )
    a = cost.arrays()
    ask(a.tokens, a.body_s, a.context_s, 1)
    start = time.perf_counter()
    ask(a.tokens, a.body_s, a.context_s, 10_000_000)
    row("decode from a compiled loop", (time.perf_counter() - start) / 10_000_000, "0.5 µs (2 M/s)")


if __name__ == "__main__":
    main()
