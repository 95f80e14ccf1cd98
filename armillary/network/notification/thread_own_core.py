"""A progress thread with a core of its own, which polls all the time.

It answers 0.3 us after an event, whatever the application does, and the application computes with one core less: of c cores, c - 1 are
left. Denis, Jaeger and Taboada, A progress thread placement study for MPI, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter
from armillary.network.notification.simulation.notifier import HANDLER_US, US, Notifier, check_cores

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy


@dataclass(frozen=True)
class ThreadOwnCore(Notifier):
    """A helper that polls on a core that the application does without."""

    detect_us: float = parameter(0.3, "microseconds until the thread has seen an event", range=(0.0, 1e6))
    handler_us: float = parameter(HANDLER_US, "microseconds for each event, on the thread's core", range=(0.0, 1e6))

    def policy(self, cores: int = 4) -> Policy:
        """Computing takes cores / (cores - 1) times as long."""
        from armillary.comm.virtual.progress import Policy

        check_cores(cores)
        return Policy("helper", detect=self.detect_us * US, handler=self.handler_us * US, core_share=1.0 / cores)

    def on_top_us(self, cores: int = 4) -> float:
        """The thread's detection."""
        return self.detect_us
