"""In-network aggregation lets every GPU stream its bytes to the switch, which adds packets up in its slots and returns the sum.

A byte crosses each link once instead of twice, but all GPUs of a server share its NIC, which carries g times the bytes. Slots are
partitioned among the jobs of a switch, because the switch's pool is set up once for each job. A job that finds its slots taken waits for
a timer and then falls back to the ring.

Sapio et al., Scaling distributed machine learning with in-network aggregation (SwitchML), NSDI 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.parameters import parameter

from .collectives.path import Path
from .collectives.technique import Collective


@dataclass(frozen=True)
class Ina(Collective):
    """Every GPU through the switch (SwitchML, NSDI 2021)."""

    wait_us: float = parameter(500.0, "the microseconds to wait for slots before the ring is taken", range=(0.0, 1e6))

    @property
    def path(self) -> Path:
        return Path(flat=True, x=1.0, wait_s=self.wait_us * 1e-6)
