"""What a technique learnt about one domain: watts per column, and what they predict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from armillary.errors import unknown
from armillary.runtime.energy.traces.tasks import Real

from .observed import IDLE, Metered, Observed
from .solving import Solution, times


@dataclass(frozen=True)
class Fitted:
    """Watts of a busy worker by column; `base_w` is what the domain draws beside them. Columns of one group share one power.

    `lag_ns` and `window_s` are what was found out about the meter; 0 where it is taken as it is.
    """

    power: dict[str, float]
    base_w: float = 0.0
    groups: tuple[tuple[str, ...], ...] = ()
    condition: float = 1.0
    solution: Solution | None = field(default=None, repr=False)
    observed: Observed | None = field(default=None, repr=False)
    lag_ns: int = 0
    window_s: float = 0.0
    note: str = ""

    @property
    def usual(self) -> float:
        """The mean power over all busy time that was seen: what an unknown type is taken for."""
        if self.observed is None:
            return 0.0
        busy = [j for j, one in enumerate(self.observed.busy) if one]
        seconds = [float(self.observed.seconds[:, j].sum()) for j in busy]
        total = math.fsum(seconds)
        return math.fsum(s * self.power.get(self.observed.columns[j], 0.0) for j, s in zip(busy, seconds)) / total if total else 0.0

    def predict(self, run: Metered | Observed, *, strict: bool = True) -> Real:
        """Joules of each interval of a run. A type that was never seen is an InputError, or without `strict` the usual power."""
        seen = run if isinstance(run, Observed) else run.observe(self.lag_ns, self.window_s)
        powers = np.array([self._power(name, strict) for name in seen.columns])
        return times(seen.seconds, powers) + self.base_w * seen.lengths

    def _power(self, name: str, strict: bool) -> float:
        if name in self.power:
            return self.power[name]
        if strict and name != IDLE:
            raise unknown("type of task", name, self.power, where="model")
        return 0.0 if name == IDLE else self.usual


class Fitting(Protocol):
    """What the arena expects of a technique."""

    def fit(self, run: Metered) -> Fitted:
        """Learns the powers of one domain from a metered run."""


def total(values: Real) -> float:
    """The sum, correctly rounded, so that it has the same bits everywhere."""
    return math.fsum(values.tolist())


def mape(energy: Real, predicted: Real) -> float:
    """Mean |E − Ê|/E in percent."""
    return 100.0 * total(np.abs(energy - predicted) / energy) / len(energy)
