"""A ring through all GPUs in their order is bandwidth-optimal among equal links and ignores NVLink.

Every GPU sends 2(n−1)/n of the bytes to the next. The slowest link, the NIC between two servers, sets the pace of all, and 2(n−1) steps
of latency add up.

Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

from .collectives.path import Path
from .collectives.technique import Collective


@dataclass(frozen=True)
class Ring(Collective):
    """One flat ring over all GPUs of a group (2009)."""

    @property
    def path(self) -> Path:
        return Path(flat=True)
