"""Independent chains of small kernels that alternate between two APIs (`mix`), and kernels that do nothing (`empty`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.kernels import kernel as compiled
from armillary.runtime.dataflow.apis.api import Kernel
from armillary.runtime.dataflow.apis.opencl import ClSource

from . import sources
from .application import Application, Operation

#: Numbers in the array of a chain.
SIZE = 256


def mix(
    chains: int, length: int, rounds: int, rng: np.random.Generator, apis: tuple[str, ...] = ("opencl", "numba"), latency: float = 0.0,
    known: dict[str, Any] | None = None,
) -> Application:  # fmt: skip
    """`chains` chains of `length` kernels, each of `rounds` rounds on 256 numbers; on the simulated device a kernel takes `latency`
    seconds."""
    arrays = [rng.random(SIZE) for _ in range(chains)]
    start = [array.copy() for array in arrays]
    relax = _relax(latency)
    made = [
        Operation(relax, apis[step % len(apis)], (arrays[c], rounds), (), (f"x{c}",)) for step in range(length) for c in range(chains)
    ]  # fmt: skip
    known = {} if known is None else known

    def error() -> float:
        if "arrays" not in known:
            expected = []
            for array in start:
                found = array.copy()
                for step in range(length):
                    if apis[step % len(apis)] != "sim":
                        loop_relax(found, rounds)
                expected.append(found)
            known["arrays"] = expected
        return max(float(np.abs(a - b).max() / 1e-12) for a, b in zip(arrays, known["arrays"]))

    return Application("mix", made, {f"x{c}": a for c, a in enumerate(arrays)}, list(zip(arrays, start)), error)


def empty(chains: int, length: int, rng: np.random.Generator, api: str = "opencl") -> Application:
    """Kernels that do nothing, to show what a task costs."""
    arrays = [np.zeros(1) for _ in range(chains)]
    made = [Operation(NOTHING, api, (arrays[c],), (), (f"x{c}",)) for _ in range(length) for c in range(chains)]
    return Application("empty", made, {f"x{c}": a for c, a in enumerate(arrays)}, [], lambda: 0.0)


@compiled
def loop_relax(a, rounds):  # type: ignore[no-untyped-def]
    """Moves every number towards 1, `rounds` times."""
    for i in range(a.size):
        x = a[i]
        for _ in range(rounds):
            x = x * 0.999 + 0.001
        a[i] = x


def _numbers(a: np.ndarray, *args: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (a.size,), (min(64, a.size),)


def _relax(latency: float) -> Kernel:
    return Kernel("relax", {"numba": loop_relax, "opencl": ClSource(sources.RELAX, "relax", _numbers), "sim": latency})


NOTHING = Kernel("nothing", {"opencl": ClSource(sources.NOTHING, "nothing", _numbers), "sim": 0.0})
