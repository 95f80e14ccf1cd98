"""One default service for everybody, with the VNIs 1 and 10: what a card offers before anybody configures it.

This is the single-tenant mode of the fabric. It costs nothing and separates nothing.

CXI_SERVICE(7), the manual of the card's library, Hewlett Packard Enterprise, 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .device.cxi import DEFAULT_VNIS, CxiDevice
from .simulation.fabric import Fabric, Isolation, Job


class DefaultFabric(Fabric):
    """Every job has the VNIs of the default service."""

    def card(self) -> CxiDevice:
        """The default service is enabled."""
        return CxiDevice(default_enabled=True)

    def admit(self, job: Job) -> None:
        """Nothing is handed out."""
        self.held[job.name] = DEFAULT_VNIS


@dataclass(frozen=True)
class DefaultService(Isolation):
    """The shared default service."""

    def fabric(self, clock: Callable[[], float], *, low: int, high: int) -> Fabric:
        """A new run."""
        return DefaultFabric()
