"""A transport that costs nothing: the bound of what any other may reach.

A versatile simulated data transport layer for in situ workflows performance evaluation, IEEE CLUSTER 2025, where MQ moves bytes in no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .simulation.technique import SimulatedTransport


@dataclass(frozen=True)
class Ideal(SimulatedTransport):
    """Bytes move in no time, publishers never wait, and the better placement counts."""

    transport: ClassVar[str] = "ideal"
    #: No transport that exists, and so nobody's rival.
    oracle = True
