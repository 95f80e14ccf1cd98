"""Polls inserted into the application: it calls `test` every so often while it computes.

Each poll costs a call, and an event waits for half a period on average. A dependent chain of events (answer, chunk, chunk, ...) waits for a
poll at each link, so long messages in pieces hardly move. Hoefler and Lumsdaine, Message progression in parallel computing: to thread or
not to thread?, CLUSTER 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter
from armillary.network.notification.simulation.notifier import HANDLER_US, POLL_US, US, Notifier

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy


@dataclass(frozen=True)
class PollInserted(Notifier):
    """The application tests every `tau_us` microseconds of computing."""

    tau_us: float = parameter(50.0, "microseconds of computing between two polls", range=(1e-3, 1e9))
    poll_us: float = parameter(POLL_US, "microseconds of a poll that finds nothing", range=(0.0, 1e6))
    handler_us: float = parameter(HANDLER_US, "microseconds for each event", range=(0.0, 1e6))

    def policy(self, cores: int = 4) -> Policy:
        """Polls in step with what is computed."""
        from armillary.comm.virtual.progress import Policy

        return Policy("poll", every=self.tau_us * US, poll=self.poll_us * US, handler=self.handler_us * US)

    def on_top_us(self, cores: int = 4) -> float:
        """Half a period on average, and the poll."""
        return self.tau_us / 2 + self.poll_us
