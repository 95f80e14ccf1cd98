"""User interrupts with protection from storms: interrupts while events are few, polls while they are many.

It is `uintr` while the rank computes and polling while it waits. If more events arrive than would leave the rank nine tenths of its core,
it turns notifications off and polls at intervals until there are less than half as many. Mogul and Ramakrishnan showed this remedy for
kernels (Eliminating receive livelock in an interrupt-driven kernel, 1997); its use for user interrupts is our design.

The rate counts events and not runs of the handler, because a rank that polls runs its handler seldom and would return at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind, parameter
from armillary.network.notification.poll_inserted import PollInserted
from armillary.network.notification.simulation.notifier import US, Notifier
from armillary.network.notification.uintr import Uintr

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy


@dataclass(frozen=True)
class Adaptive(Notifier):
    """`uintr`, and polls in storms."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "time", over="poll-in-wait", by=Gain(ratio=(0.95, None)), on=(Kind("zero"), Kind("burst")),
            says="no more than 5 % slower than polling in waits where nothing can be overlapped, and in storms", source="ours",
        ),
    )  # fmt: skip

    share: float = parameter(0.1, "share of the core that handlers may take before the rank polls instead", range=(1e-6, 1.0))
    during_us: float = parameter(1000.0, "microseconds over which the rate of events is measured", range=(1.0, 1e9))
    tau_us: float = parameter(50.0, "microseconds of computing between two polls in a storm", range=(1e-3, 1e9))
    handler_us: float = parameter(0.2, "microseconds for each event", range=(0.0, 1e6))

    def policy(self, cores: int = 4) -> Policy:
        """The policy of `uintr`, with polls above 1 / (10 x the cost of one run of the handler) events per second."""
        first = Uintr(handler_us=self.handler_us)
        polls = PollInserted(tau_us=self.tau_us, handler_us=self.handler_us).policy(cores)
        above = self.share / (first.run_us * US)
        return replace(first.policy(cores), otherwise=polls, above=above, during=self.during_us * US)

    def on_top_us(self, cores: int = 4) -> float:
        """That of a user interrupt."""
        return Uintr().on_top_us(cores)
