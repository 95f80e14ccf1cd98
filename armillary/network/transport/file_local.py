"""Files on the publishers' own disks, with the analysis on the same nodes.

A versatile simulated data transport layer for in situ workflows performance evaluation, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .simulation.technique import FAST, SimulatedTransport


@dataclass(frozen=True)
class FileLocal(SimulatedTransport):
    """Files on node-local disks."""

    transport: ClassVar[str] = "file-local"
    claims = (FAST,)
