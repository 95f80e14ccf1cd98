"""Sleeping in the kernel: the rank gives its core away in a wait and is woken by the event.

It saves the power and the core of a rank that waits long, and adds a wake-up to everything that happens in a wait. While the rank computes,
nothing is noticed. The wake-up is measured on this machine too (cases `here-*`). Larsen, Sarangam and Huggahalli gave the pieces of such a
path in 2007 (Architectural breakdown of end-to-end latency in a TCP/IP network, SBAC-PAD 2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter
from armillary.network.notification.simulation.notifier import HANDLER_US, US, Notifier

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy


@dataclass(frozen=True)
class Block(Notifier):
    """A blocking wait."""

    wake_us: float = parameter(5.0, "microseconds from an event until a rank that sleeps goes on", range=(0.0, 1e6))
    handler_us: float = parameter(HANDLER_US, "microseconds for each event that has to be answered", range=(0.0, 1e6))

    def policy(self, cores: int = 4) -> Policy:
        """Nothing is noticed between calls, and late in them."""
        from armillary.comm.virtual.progress import Policy

        return Policy("never", wake=self.wake_us * US, handler=self.handler_us * US)

    def on_top_us(self, cores: int = 4) -> float:
        """The wake-up."""
        return self.wake_us
