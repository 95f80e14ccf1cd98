"""A progress thread that shares the application's cores: it runs when the scheduler lets it.

It takes no core away, but an event waits for the scheduler, up to a quantum, and each run costs two switches of context. Hoefler and
Lumsdaine, Message progression in parallel computing: to thread or not to thread?, CLUSTER 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter
from armillary.network.notification.simulation.notifier import HANDLER_US, US, Notifier

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy


@dataclass(frozen=True)
class ThreadSharedCore(Notifier):
    """A helper that waits for its turn on the application's cores."""

    quantum_us: float = parameter(4000.0, "microseconds that the scheduler lets it wait at most; the wait is uniform", range=(0.0, 1e9))
    switch_us: float = parameter(2.5, "microseconds of a switch of context", range=(0.0, 1e6))
    handler_us: float = parameter(HANDLER_US, "microseconds for each event", range=(0.0, 1e6))

    def policy(self, cores: int = 4) -> Policy:
        """A handler on the application's core, after a random delay."""
        from armillary.comm.virtual.progress import Policy

        return Policy("interrupt", spread=self.quantum_us * US, switch=self.switch_us * US, handler=self.handler_us * US, lock=True)

    def on_top_us(self, cores: int = 4) -> float:
        """Half a quantum on average, and the switch to the thread and back."""
        return self.quantum_us / 2 + 2 * self.switch_us
