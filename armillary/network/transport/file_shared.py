"""Files on the shared file system: publishers never wait for subscribers, and everything passes one store twice.

A versatile simulated data transport layer for in situ workflows performance evaluation, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .simulation.technique import FAST, SimulatedTransport


@dataclass(frozen=True)
class FileShared(SimulatedTransport):
    """Files on the shared file system."""

    transport: ClassVar[str] = "file-shared"
    claims = (FAST,)
