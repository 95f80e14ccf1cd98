"""GPU only: every request on the GPU. Where its node vanishes, requests wait until it is back.

The second baseline of Gaia, BDCAT 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .functions.curves import PRICES
from .simulation.policy import FIXED, GPU, Policy


@dataclass(frozen=True)
class GpuOnly(Technique):
    """Keeps every function on the GPU."""

    def policy(self, prices: tuple[float, float] = PRICES) -> Policy:
        """The GPU, whatever the mode."""
        return Policy(FIXED, fallback=False, start=(GPU, GPU, GPU, GPU))
