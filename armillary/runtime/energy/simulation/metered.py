"""Programs of tasks that really run while a real meter reads: a factorisation on threads with RAPL, kernels on a GPU with NVML."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from armillary.arena import NotForThisCase
from armillary.runtime.energy.meters.meter import Meter
from armillary.runtime.energy.meters.rapl import NoMeter
from armillary.runtime.energy.model.observed import Metered
from armillary.runtime.energy.traces.tasks import TaskTrace, joined, of_run
from armillary.runtime.energy.workload import EnergyWork

from .real import factorisation, matrix_for

#: The types that run on a GPU.
GPU_TYPES = ("gemm", "trsm", "potrf", "axpy")


def real_meter_work(p: Mapping[str, Any], rng: np.random.Generator) -> EnergyWork:
    """Three runs of some seconds under a real meter; raises `NotForThisCase` with the reason where there is none."""
    first, second = p["policies"]
    make = _on_gpu if p["source"] == "nvml" else _on_threads
    runs = [make(p, policy, rng) for policy in (first, first, second)]
    return EnergyWork(fit=(runs[0],), held=(runs[1],), other=(runs[2],))


def _meter(source: str) -> Meter:
    try:
        return Meter(source, period=0.02 if source == "nvml" else 0.01)
    except NoMeter as reason:
        raise NotForThisCase(f"no {source} meter: {reason}") from None


def _on_threads(p: Mapping[str, Any], policy: str, rng: np.random.Generator) -> Metered:
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from armillary.tasks import Threads

    matrix = matrix_for(p["graph"], p["tiles"] * p["tile"], rng)
    traces: list[TaskTrace] = []
    with _meter(p["source"]) as meter, threadpool_limits(1):
        until = time.monotonic() + p["seconds"]
        while time.monotonic() < until:
            run = factorisation(p["graph"], matrix.copy(), p["tiles"]).run(Threads(p["workers"]), policy=policy).raise_first()
            one = of_run(run.trace)
            traces.append(one.shifted(one.origin_ns or 0))
    domains = list(meter.readings)
    if len(domains) > 1:
        raise NotForThisCase(f"the meter has {len(domains)} packages, and threads are not bound to one of them")
    return Metered(_as_one(traces), meter.readings[domains[0]], tuple(range(p["workers"])))


def _as_one(traces: list[TaskTrace]) -> TaskTrace:
    """Traces on one clock as one trace."""
    whole = joined([one.shifted(-int(one.start.min())) for one in traces])
    move = np.concatenate([np.full(len(one), int(one.start.min())) for one in traces])
    back = np.cumsum([0, *(int(one.end.max()) - int(one.start.min()) for one in traces[:-1])])
    at = np.concatenate([np.full(len(one), b) for one, b in zip(traces, back)])
    return TaskTrace(
        whole.start - at + move, whole.end - at + move, whole.type, whole.worker, whole.types, whole.workers, whole.kinds,
        weight=whole.weight,
    )  # fmt: skip


def _on_gpu(p: Mapping[str, Any], policy: str, rng: np.random.Generator) -> Metered:
    """Kernels of four types in random bursts on the first GPU, one after another, each as one task."""
    try:
        import torch
    except ImportError:
        raise NotForThisCase("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise NotForThisCase("there is no CUDA device")
    n = int(p["side"])
    a = torch.randn(n, n, device="cuda")
    spd = a @ a.T + n * torch.eye(n, device="cuda")
    low = torch.linalg.cholesky(spd)
    out = torch.empty_like(a)
    calls: dict[str, Any] = {
        "gemm": lambda: torch.mm(a, a, out=out), "trsm": lambda: torch.linalg.solve_triangular(low, a, upper=False),
        "potrf": lambda: torch.linalg.cholesky(spd), "axpy": lambda: torch.add(a, out, alpha=1e-9, out=out),
    }  # fmt: skip
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    rows: list[tuple[int, int, int]] = []
    with _meter("nvml") as meter:
        until = time.monotonic() + p["seconds"]
        while time.monotonic() < until:
            # The other policy runs longer bursts of one type; pauses leave the device idle.
            kind = int(rng.integers(0, len(GPU_TYPES) + 1))
            lasts = time.monotonic() + float(rng.uniform(0.02, 0.2 if policy == "short" else 0.8))
            while time.monotonic() < lasts:
                if kind == len(GPU_TYPES):
                    time.sleep(0.005)
                    continue
                begun = time.monotonic_ns()
                calls[GPU_TYPES[kind]]()
                torch.cuda.synchronize()
                rows.append((kind, begun, time.monotonic_ns()))
    table = np.array(rows, np.int64)
    worker = np.zeros(len(table), np.int64)
    trace = TaskTrace(table[:, 1].copy(), table[:, 2].copy(), table[:, 0].copy(), worker, GPU_TYPES, ("gpu0",), ("gpu",))
    return Metered(trace.checked("GPU"), meter.readings["gpu0"], (0,))
