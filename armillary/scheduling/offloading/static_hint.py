"""Static hint: the inspector's mode, never revised.

Gaia without its runtime. A function whose GPU vanished runs on the CPU until the GPU is back, because its source says that it can; one in
the hard mode `gpu` waits. An ablation of Gaia, BDCAT 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .functions.curves import PRICES
from .simulation.policy import STATIC, Policy


@dataclass(frozen=True)
class StaticHint(Technique):
    """Keeps every function where the inspector put it."""

    interval_s: float = parameter(30.0, "seconds between two looks at whether a lost GPU is back", range=(1.0, 1e6))

    def policy(self, prices: tuple[float, float] = PRICES) -> Policy:
        """The backend of the mode, whenever it is there."""
        return Policy(STATIC, interval_s=self.interval_s)
