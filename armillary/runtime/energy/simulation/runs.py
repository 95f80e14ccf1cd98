"""Factorisations that run on virtual workers: the tasks, what they cost, and their traces.

A core does 8 to 30 Gflop/s in these kernels and a GPU 1.2 Tflop/s in gemm (ours: a workstation's GPU in double precision). Each call's time
has a lognormal factor of sigma 0.05.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from armillary.runtime.energy.traces.tasks import TaskTrace, Whole, joined, of_run
from armillary.streams import stream

from .sweep import call_factors

#: (flops / b³, Gflop/s of a core, tiles moved to and from memory) of each kernel, b being the side of a tile.
KERNELS = {
    "gemm": (2.0, 30.0, 4), "syrk": (1.0, 26.0, 3), "trsm": (1.0, 22.0, 3), "potrf": (1 / 3, 10.0, 2), "getrf": (2 / 3, 9.0, 2),
    "tsmqr": (4.0, 24.0, 6), "ormqr": (2.0, 22.0, 4), "geqrt": (4 / 3, 8.0, 3), "tsqrt": (2.0, 10.0, 4),
}  # fmt: skip
#: Seconds of a tile of 960 on a GPU; the other kernels run on cores only.
GPU_SECONDS = {"gemm": 1.5e-3, "syrk": 0.9e-3, "trsm": 1.6e-3}
CPU_TILE, HYBRID_TILE, CORES = 512, 960, 8
HYBRID_CORES, GPUS = 64, 4


@dataclass(frozen=True)
class Ran:
    """A trace, and the tile that each of its tasks writes."""

    trace: TaskTrace
    tile: Whole


@functools.lru_cache(maxsize=24)
def ran(graph: str, tiles: int, policy: str, hybrid: bool, seed: int, times: int = 1) -> Ran:
    """The run of a factorisation of tiles × tiles under a policy, or of several small ones one after another.

    `hybrid` takes the 64 cores and 4 GPUs of a node of perlmutter-gpu instead of eight cores.
    """
    runs = [_once(graph, tiles, policy, hybrid, seed, number) for number in range(times)]
    if times == 1:
        return runs[0]
    tile = np.concatenate([one.tile + 10_000 * at for at, one in enumerate(runs)])
    return Ran(joined([one.trace for one in runs], gap_ns=200_000), tile)


def _once(graph: str, tiles: int, policy: str, hybrid: bool, seed: int, number: int) -> Ran:
    from armillary.tasks import Virtual, shapes

    side = HYBRID_TILE if hybrid else CPU_TILE
    made = getattr(shapes, graph)(tiles, tile_bytes=8 * side * side)
    normal = stream(seed, "durations", graph, str(tiles), policy, str(number)).standard_normal(2 * len(made.tasks))
    factor = np.asarray(call_factors(normal, 0.05)).tolist()
    flops, nbytes = np.empty(len(made.tasks)), np.empty(len(made.tasks))
    for task in made.tasks:
        each, rate, moved = KERNELS[task.name]
        flops[task.id], nbytes[task.id] = each * side**3, moved * 8.0 * side * side
        seconds = flops[task.id] / (rate * 1e9)
        if not hybrid:
            task.cost = seconds * factor[task.id]
            continue
        task.cost = {"cpu": seconds * factor[task.id]}
        if task.name in GPU_SECONDS:
            task.cost["gpu"] = GPU_SECONDS[task.name] * factor[len(made.tasks) + task.id]
            task.on = ("cpu", "gpu")
    run = made.run(Virtual(_machine() if hybrid else CORES), policy=policy, seed=seed)
    trace = of_run(run.trace, flops, nbytes)
    if hybrid:  # A trace does not say the kind of a worker that ran nothing.
        trace = replace(trace, kinds=("cpu",) * HYBRID_CORES + ("gpu",) * GPUS)
    return Ran(trace, _tiles(made, run.trace, len(trace)))


def _tiles(graph: Any, trace: Any, rows: int) -> Whole:
    from armillary.tasks.trace import LINK

    written = np.array([task.accesses[-1].data.id for task in graph.tasks], np.int64)
    busy = written[trace["task"][(trace["kind"] != LINK) & (trace["worker"] >= 0)]]
    return np.concatenate((busy, np.zeros(rows - len(busy), np.int64)))


@functools.cache
def _machine() -> Any:
    from armillary.cluster import preset

    return preset("perlmutter-gpu").slice([0])
