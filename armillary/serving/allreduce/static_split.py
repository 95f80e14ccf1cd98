"""Half of the bytes always go through the switch and half round the ring, whatever the traffic.

This is the simplest way to use both paths at once, and shows what choosing the share is worth. It is our own baseline, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .collectives.path import Path
from .collectives.technique import Collective


@dataclass(frozen=True)
class StaticSplit(Collective):
    """A fixed share through the switch, the rest round the ring (ours, 2025)."""

    x: float = parameter(0.5, "the share of the bytes that goes through the switch", range=(0.0, 1.0))
    wait_us: float = parameter(500.0, "the microseconds to wait for slots before the ring is taken", range=(0.0, 1e6))

    @property
    def path(self) -> Path:
        return Path(x=self.x, wait_s=self.wait_us * 1e-6)
