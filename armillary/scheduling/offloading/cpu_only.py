"""CPU only: every request on the CPU, as serverless platforms run functions by default.

The first baseline of Gaia, BDCAT 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .functions.curves import PRICES
from .simulation.policy import CPU, FIXED, Policy


@dataclass(frozen=True)
class CpuOnly(Technique):
    """Keeps every function on the CPU."""

    def policy(self, prices: tuple[float, float] = PRICES) -> Policy:
        """The CPU, whatever the mode."""
        return Policy(FIXED, start=(CPU, CPU, CPU, CPU))
