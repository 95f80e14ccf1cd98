"""What the simulated machines draw: watts per type of task, for the cores of a package and for GPUs.

The watts of gemm, syrk, trsm and potrf, of an idle worker and of the package come from the specification of this arena; those of the other
kernels are ours, by how many flops they do per byte. A GPU that only copies draws what `copy` says, so a copy adds that minus idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CPU_WATTS = {
    "gemm": 9.5, "syrk": 9.0, "trsm": 8.0, "potrf": 6.5, "getrf": 6.8, "tsmqr": 9.2, "ormqr": 8.6, "geqrt": 6.2, "tsqrt": 6.9,
}  # fmt: skip
GPU_WATTS = {"gemm": 380.0, "syrk": 350.0, "trsm": 260.0}
CPU_IDLE, PACKAGE, GPU_IDLE, GPU_COPY = 1.5, 35.0, 75.0, 120.0


@dataclass(frozen=True)
class Truth:
    """The power of one domain: `watts` of a busy worker (its idle power included) by type, and of a transfer beside what else runs.

    `call_sigma` is that of a lognormal factor per call, or per tile with `per_tile`. `drift` is the growth of the power per second.
    `turbo` is by what share the power of a busy worker falls when all are busy, and `contention` that of two types that run side by side.
    `stranger_w` is drawn by another process for 0.1 to 2 s at a time, 30 % of the time.
    """

    watts: dict[str, float]
    idle_w: float
    base_w: float = 0.0
    copy_w: float = 0.0
    call_sigma: float = 0.03
    per_tile: bool = False
    drift: float = 0.0005
    turbo: float = 0.0
    contention: float = 0.0
    pair: tuple[str, str] = ("gemm", "trsm")
    stranger_w: float = 0.0


@dataclass(frozen=True)
class MeterModel:
    """How a simulated meter reads, in seconds and joules: the time between readings and its jitter either way, the delay between the time
    that is noted and the reading, the quantum, and for meters of power the window that a reading averages over (0: a counter).
    """

    period: float = 0.01
    jitter: float = 0.001
    delay: float = 0.001
    quantum: float = 61e-6
    window: float = 0.0
    wrap: float = field(default=0.0)


RAPL_LIKE = MeterModel()
NVML_LIKE = MeterModel(period=0.1, jitter=0.01, delay=0.001, quantum=1e-3, window=0.025)
#: Readings without any fault, for tests.
PERFECT = MeterModel(jitter=0.0, delay=0.0, quantum=0.0)

#: What each kind of case changes in the truth; the powers of linear obey the fitted model, those of the others do not.
MISFITS: dict[str, dict[str, float | bool]] = {
    "linear": {}, "turbo": {"turbo": 0.25}, "contention": {"contention": 0.12}, "input": {"call_sigma": 0.3, "per_tile": True},
    "stranger": {"stranger_w": 15.0},
}  # fmt: skip


def truth(kind: str, misfit: str) -> Truth:
    """The truth of a package's cores (`cpu`) or of one GPU (`gpu`)."""
    changes = dict(MISFITS[misfit])
    if kind == "cpu":
        return Truth({name: CPU_IDLE + watts for name, watts in CPU_WATTS.items()}, CPU_IDLE, PACKAGE, **changes)  # type: ignore[arg-type]
    return Truth(GPU_WATTS, GPU_IDLE, 0.0, GPU_COPY - GPU_IDLE, **changes)  # type: ignore[arg-type]
