"""Gaia's controller beside a running platform: it gets what Prometheus says, and answers with the mode."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from armillary.errors import InputError, unknown

from . import rules
from .settings import Settings


class Mode(StrEnum):
    """The device of a function: decided for good (`cpu`, `gpu`), or open to revision (`cpu_preferred`, `gpu_preferred`)."""

    CPU = "cpu"
    CPU_PREFERRED = "cpu_preferred"
    GPU_PREFERRED = "gpu_preferred"
    GPU = "gpu"

    @property
    def rank(self) -> int:
        """Its place from the weakest (0) to the strongest (3)."""
        return list(Mode).index(self)

    @property
    def on_gpu(self) -> bool:
        """Whether its pods get a GPU."""
        return self.rank >= rules.GPU_PREFERRED

    @staticmethod
    def of(name: str | Mode) -> Mode:
        """The mode of this name."""
        try:
            return Mode(name)
        except ValueError:
            raise unknown("mode", str(name), [mode.value for mode in Mode]) from None


@dataclass(frozen=True)
class Metrics:
    """What Prometheus says of the function's current revision at a time; None is unknown.

    Rates are completed requests per second, latencies are 95th percentiles in ms, over 10 min and over the long window (500 min).
    """

    time_s: float
    rate_1m: float | None = None
    rate_30m: float | None = None
    p95_ms: float | None = None
    long_p95_ms: float | None = None
    gpu_available: bool = True

    def __post_init__(self) -> None:
        for name in ("rate_1m", "rate_30m", "p95_ms", "long_p95_ms"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                where = f"t = {self.time_s:g} s"
                raise InputError(f"{name}: found {value:g}; expected a finite number of at least 0, or None", where=where)
        if not math.isfinite(self.time_s):
            raise InputError(f"found the time {self.time_s:g}; expected seconds")


@dataclass
class GaiaRuntime:
    """The rules with their state; it holds no clock, because times come with the metrics.

    `step` answers with the mode from now on. After a change, metrics must be those of the new revision alone.
    """

    mode: Mode = Mode.CPU_PREFERRED
    settings: Settings = field(default_factory=Settings)
    #: The number of the rule that changed the mode last; None before.
    rule: int | None = None
    _last_s: float = field(default=-math.inf, repr=False)

    def __post_init__(self) -> None:
        self.mode = Mode.of(self.mode)
        self._settings = self.settings.compiled()
        self._state = np.full(rules.STATE, math.nan)
        self._state[rules.MODE] = self.mode.rank

    @property
    def cpu_ms(self) -> float | None:
        """The stored latency of the CPU; None before it was left."""
        return _known(self._state[rules.CPU_MS])

    @property
    def gpu_ms(self) -> float | None:
        """The stored latency of the GPU; None before it was left."""
        return _known(self._state[rules.GPU_MS])

    @property
    def changed_s(self) -> float | None:
        """The time of the last change; None before."""
        return _known(self._state[rules.CHANGED_S])

    def step(self, metrics: Metrics) -> Mode:
        """The mode after this look."""
        if metrics.time_s < self._last_s:
            raise InputError(f"found the time {metrics.time_s:g} after {self._last_s:g}; expected seconds that do not decrease")
        self._last_s = metrics.time_s
        values = [math.nan if v is None else float(v) for v in (metrics.rate_1m, metrics.rate_30m, metrics.p95_ms)]
        if self.mode is Mode.GPU_PREFERRED and not metrics.gpu_available and self.settings.device_loss:
            mode, rule = rules.CPU_PREFERRED, rules.LOST
        else:
            mode, rule = rules.decide(self._settings, self._state, float(metrics.time_s), *values)
            if mode > rules.CPU_PREFERRED and not metrics.gpu_available:
                mode = self.mode.rank
        if mode != self.mode.rank:
            known = metrics.long_p95_ms if metrics.long_p95_ms is not None else metrics.p95_ms
            rules.change(self._settings, self._state, mode, float(metrics.time_s), math.nan if known is None else float(known))
            self.mode, self.rule = list(Mode)[mode], int(rule)
        return self.mode


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
