"""NVLink reduces first, and then the switch aggregates one stream per server instead of one per GPU.

The NIC carries every byte once. As in SwitchML, slots are partitioned among the jobs of a switch, and the ring is used after a timer.

Sapio et al., Scaling distributed machine learning with in-network aggregation (SwitchML), NSDI 2021, section 4,
with several GPUs per worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .collectives.path import Path
from .collectives.technique import Collective


@dataclass(frozen=True)
class InaHier(Collective):
    """NVLink reduce-scatter, the switch between servers, NVLink all-gather (NSDI 2021)."""

    wait_us: float = parameter(500.0, "the microseconds to wait for slots before the ring is taken", range=(0.0, 1e6))

    @property
    def path(self) -> Path:
        return Path(x=1.0, wait_s=self.wait_us * 1e-6)
