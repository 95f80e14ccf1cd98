"""Half through the switch, half round the ring, always: a hybrid that looks at nothing.

The plainest way to use both paths at once, as a measure of what choosing the share is worth. Ours, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .collective import Collective
from .path import Path


@dataclass(frozen=True)
class StaticSplit(Collective):
    """A fixed share through the switch, the rest round the ring (ours, 2025)."""

    x: float = field(default=0.5, metadata={"doc": "share of the bytes through the switch", "range": (0.0, 1.0)})
    wait_us: float = field(default=500.0, metadata={"doc": "microseconds to wait for slots before the ring is taken", "range": (0.0, 1e6)})

    @property
    def path(self) -> Path:
        return Path(x=self.x, wait_s=self.wait_us * 1e-6)
