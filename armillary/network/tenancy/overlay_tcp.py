"""No RDMA: TCP through the overlay network (VXLAN) that every cluster has.

Its bandwidth of 0.35 and its latency of 12 times the native ones are assumptions, and no claim uses them.

Virtual eXtensible Local Area Network (VXLAN), RFC 7348, 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from .simulation.fabric import Fabric, Isolation


@dataclass(frozen=True)
class OverlayTcp(Isolation):
    """TCP over the overlay."""

    rdma: ClassVar[bool] = False

    def fabric(self, clock: Callable[[], float], *, low: int, high: int) -> Fabric:
        """A new run, in which nobody gets a VNI."""
        return Fabric()
