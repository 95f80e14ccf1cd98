"""Powers while a program runs: recursive least squares that forgets.

Each new interval updates the inverse Gram matrix in O(p²); what lies n intervals back counts λⁿ. Unlike the fit of a whole run it has no
constraint P ≥ 0, so a type that hardly ran may have a negative number for a while.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from armillary.errors import InputError
from armillary.runtime.energy.model.observed import IDLE


class Streaming:
    """`update({"gemm": 0.2, "idle": 0.1}, joules)` per interval; `power` has the watts so far, and `hungriest()` who takes most."""

    def __init__(self, forgetting: float = 0.995, usual_w: float = 10.0) -> None:
        if not 0.5 <= forgetting <= 1.0:
            raise InputError(f"forgetting: found {forgetting:g}; expected 0.5 to 1")
        self.forgetting, self.usual_w = forgetting, usual_w
        self.columns: list[str] = []
        self._p = np.zeros((0, 0))
        self._w = np.zeros(0)
        self._seconds = np.zeros(0)

    @property
    def power(self) -> dict[str, float]:
        """Watts per column."""
        return dict(zip(self.columns, self._w.tolist()))

    def update(self, seconds: Mapping[str, float], joules: float) -> float:
        """Learns from one interval; returns the joules that were expected before it was known."""
        if not np.isfinite(joules) or joules <= 0 or any(not np.isfinite(s) or s < 0 for s in seconds.values()):
            raise InputError("found seconds or joules that are negative or not finite; expected worker-seconds and joules above 0")
        for name in seconds:
            if name not in self.columns:
                self._add(name)
        x = np.array([seconds.get(name, 0.0) for name in self.columns]) / joules
        self._seconds = self.forgetting * self._seconds + x * joules
        expected = float(x @ self._w)
        gain = self._p @ x / (self.forgetting + float(x @ self._p @ x))
        self._w = self._w + gain * (1.0 - expected)
        self._p = (self._p - np.outer(gain, x @ self._p)) / self.forgetting
        # Rounding must not make it lose its symmetry over millions of updates, nor may what is never seen grow without bound.
        self._p = np.minimum((self._p + self._p.T) / 2.0, 1e12)
        return expected * joules

    def hungriest(self) -> str:
        """The type that takes most of the energy now; empty before any ran."""
        joules = {name: w * s for name, w, s in zip(self.columns, self._w, self._seconds) if name != IDLE}
        return max(joules, key=lambda name: joules[name]) if joules else ""

    def _add(self, name: str) -> None:
        self.columns.append(name)
        p = len(self.columns)
        grown = np.zeros((p, p))
        grown[:-1, :-1] = self._p
        grown[-1, -1] = 1e6
        self._p, self._w, self._seconds = grown, np.append(self._w, self.usual_w), np.append(self._seconds, 0.0)
