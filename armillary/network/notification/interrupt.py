"""Interrupts through the kernel: the card interrupts the core, and the kernel wakes or signals the application.

The kernel's handler runs, a signal frame is built or a thread is woken, the application collects the event and arms the next interrupt with
system calls, and returns. It answers while the rank computes, at a price for each event. The pieces are our decomposition of the ratio that
the paper of 2025 gives (6 times the latency of polling); a rank that waits polls here too, so that this rival is as good as it can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter
from armillary.network.notification.simulation.notifier import BATCH, HANDLER_US, US, Notifier

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy


@dataclass(frozen=True)
class Interrupt(Notifier):
    """MSI-X, the kernel, a signal or a wake-up, and system calls."""

    message_us: float = parameter(0.3, "microseconds of the interrupt message", range=(0.0, 1e6))
    kernel_us: float = parameter(1.2, "microseconds of the kernel's handler", range=(0.0, 1e6))
    signal_us: float = parameter(3.0, "microseconds of the wake-up or the signal frame", range=(0.0, 1e6))
    calls_us: float = parameter(2.5, "microseconds of two system calls: collect the event, arm the next", range=(0.0, 1e6))
    return_us: float = parameter(2.0, "microseconds of the return", range=(0.0, 1e6))
    handler_us: float = parameter(HANDLER_US, "microseconds for each event", range=(0.0, 1e6))
    batch: int = parameter(BATCH, "events that one run of the handler takes at most", range=(1, 1_000_000))
    disarm: bool = parameter(True, "whether interrupts are off while the rank waits")

    def policy(self, cores: int = 4) -> Policy:
        """The handler's costs fall on the rank's core; arming again after a wait is one of the two system calls."""
        from armillary.comm.virtual.progress import Policy

        return Policy(
            "interrupt",
            detect=self.message_us * US,
            entry=(self.kernel_us + self.signal_us + self.calls_us / 2) * US,
            handler=self.handler_us * US,
            exit=(self.calls_us / 2 + self.return_us) * US,
            rearm=self.calls_us / 2 * US if self.disarm else 0.0,
            batch=self.batch,
            lock=True,
            armed_in_wait=not self.disarm,
        )

    def on_top_us(self, cores: int = 4) -> float:
        """All pieces of the path."""
        return self.message_us + self.kernel_us + self.signal_us + self.calls_us + self.return_us
