"""From memory to memory on the same nodes (in situ): both sides wait for each other and share the cores.

A versatile simulated data transport layer for in situ workflows performance evaluation, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .simulation.technique import FAST, SimulatedTransport


@dataclass(frozen=True)
class StagingColocated(SimulatedTransport):
    """Memory to memory on the publishers' nodes."""

    transport: ClassVar[str] = "staging-colocated"
    claims = (FAST,)
