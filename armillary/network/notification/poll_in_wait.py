"""Polling in waits only: what MPI libraries do by default.

A rank looks at its event queue inside the calls that it makes, and nowhere else. Nothing is faster while it waits, and nothing happens
while it computes: a message that needs an answer gets it when the rank calls the library again. Brightwell, Riesen and Underwood measured
in 2005 what independent progress is worth over it (Analyzing the impact of overlap, offload, and independent progress for MPI, IJHPCA
2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter
from armillary.network.notification.simulation.notifier import HANDLER_US, US, Notifier

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy


@dataclass(frozen=True)
class PollInWait(Notifier):
    """Active polling, only inside calls."""

    handler_us: float = parameter(HANDLER_US, "microseconds for each event that has to be answered", range=(0.0, 1e6))

    def policy(self, cores: int = 4) -> Policy:
        """Nothing is noticed between calls."""
        from armillary.comm.virtual.progress import Policy

        return Policy("never", handler=self.handler_us * US)

    def on_top_us(self, cores: int = 4) -> float:
        """A rank that polls sees the message when it arrives."""
        return 0.0
