# mypy: disable-error-code="no-untyped-call,arg-type,union-attr"
"""A process that differentiates the ports by JAX: one request per line on standard input, one answer per line on standard output.

python -m armillary.training.autodiff.running.jax_child
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

#: Bytes of temporaries beyond which nothing is run.
MOST_BYTES = 4 << 30


def main() -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What libraries print is no answer.
    import jax

    jax.config.update("jax_enable_x64", True)
    kept: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = answered(request, kept)
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def answered(request: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Times one gradient; arrays come and go as .npz files in a folder."""
    import jax

    folder = Path(request["folder"])
    with np.load(folder / "arguments.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    key = json.dumps(
        [request[one] for one in ("module", "function", "static", "active", "limit")] + [[v.shape, str(v.dtype)] for v in arrays.values()]
    )
    if kept.get("key") != key:
        kept.clear()
        kept["key"] = key
        kept["made"] = compiled(request, arrays)
    gradient, forward, compile_s, bytes_, checkpoint = kept["made"]
    if bytes_ > MOST_BYTES:
        return {"declined": f"its saved values would take {bytes_ / 2**30:.1f} GiB, more than 4"}
    device = [jax.device_put(value) for value in arrays.values()]
    found = jax.block_until_ready(gradient(*device))
    np.savez(folder / "gradients.npz", **{name: np.asarray(value) for name, value in zip(request["active"], found)})
    calls = request["calls"]
    return {
        "gradient_s": median(lambda: jax.block_until_ready(gradient(*device)), calls),
        "forward_s": median(lambda: jax.block_until_ready(forward(*device)), calls),
        "compile_s": compile_s, "extra_bytes": bytes_, "checkpoint": checkpoint,
    }  # fmt: skip


def compiled(request: dict[str, Any], arrays: dict[str, Any]) -> tuple[Any, Any, float, int, bool]:
    """(gradient, forward run, seconds of compilation, bytes of temporaries, whether it has checkpoints)."""
    import jax
    import jax.numpy as jnp

    port = getattr(importlib.import_module(request["module"]), request["function"])
    names = list(arrays)
    places = tuple(names.index(name) for name in request["active"])

    def made(**options: Any) -> tuple[Any, Any, float, int]:
        def objective(*values: Any) -> Any:
            return jnp.sum(port(**request["static"], **dict(zip(names, values)), **options))

        begin = time.perf_counter()
        gradient = jax.jit(jax.grad(objective, argnums=places)).lower(*arrays.values()).compile()
        seconds = time.perf_counter() - begin
        return gradient, jax.jit(objective).lower(*arrays.values()).compile(), seconds, int(gradient.memory_analysis().temp_size_in_bytes)

    gradient, forward, seconds, bytes_ = made()
    if request["limit"] and bytes_ > request["limit"] and "checkpoint" in inspect.signature(port).parameters:
        return *made(checkpoint=True), True
    return gradient, forward, seconds, bytes_, False


def median(work: Any, calls: int) -> float:
    """Seconds of one call."""
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
