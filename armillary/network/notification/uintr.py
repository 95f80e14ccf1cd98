"""User-level interrupts from the network card: the card interrupts the application's own handler, without the kernel.

Recent x86 cores deliver interrupts straight into a handler of the application, but only from another core. Here the card raises them. The
driver writes the place of the application's descriptor, its vector and its notification vector to the card once for each event queue; on
an event the card sets the bit of the vector in the descriptor, and unless a notification is outstanding or suppressed it sends one.

    event -> descriptor over PCIe 0.4 -> interrupt message 0.3 -> delivery and entry 1.0, cold caches 0.6 | handler | exit 0.2 us

The handler drains the event queue (up to 16 events), takes the step that the protocol waits for, arms again, looks once more, and returns.
A call holds the library's lock; then the handler only leaves a note, and the call looks when it unlocks. A rank that waits has its
notifications disarmed and polls. `UserInterrupts` (architecture/) is the machine itself, state by state.

How a device triggers the interrupt, the pieces of the latency (their sum is the published 2.4 times polling), the batch, the lock and what
leaving a wait costs (as much as an exit) are our design.

Communication Notification through User-Level Interrupts for the BXI Network. IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind, Level, parameter
from armillary.network.notification.simulation.notifier import BATCH, HANDLER_US, US, Notifier

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy

DEVICE_POST, KERNEL_FORWARD, IOMMU_POSTED = VARIANTS = ("device-post", "kernel-forward", "iommu-posted")
#: All other ways to notify a rank; `adaptive` is made of this technique and of one of them.
RIVALS = ("poll-in-wait", "poll-inserted", "block", "thread-own-core", "thread-shared-core", "interrupt")
OVERLAPPED = (Kind("rendezvous", "paper"), Kind("chunks", "paper"), Kind("collective", "paper"))


@dataclass(frozen=True)
class Uintr(Notifier):
    """User interrupts that the card posts."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "latency_ratio", by=Level(at_most=2.4), on=Kind("simulated"), circular="the pieces of the path",
            needs="a BXI card that posts user interrupts",
            says="a notification takes 2.4 times the latency of active polling, where interrupts with system calls take 6 times",
        ),
        Claim(
            "near_perfect", by=Level(at_least=1.0), on=OVERLAPPED,
            says="near-perfect overlap: at least 0.95 in every case, where polling in waits reaches at most 0.5",
        ),
        Claim(
            "time", over=RIVALS, by=Gain(ratio=(1.0, None)), on=Kind("paper"),
            says="faster than the best other technique on each case, with 4 and 16 cores per rank", source="ours",
        ),
    )  # fmt: skip

    variant: str = parameter(DEVICE_POST, "how the card triggers: by itself, through the driver, or through the IOMMU", choices=VARIANTS)
    post_us: float = parameter(0.4, "microseconds of the write to the descriptor over PCIe", range=(0.0, 1e6))
    message_us: float = parameter(0.3, "microseconds of the interrupt message", range=(0.0, 1e6))
    forward_us: float = parameter(1.0, "microseconds of the kernel's entry with `kernel-forward`", range=(0.0, 1e6))
    remap_us: float = parameter(0.2, "microseconds of the descriptor's update in the IOMMU with `iommu-posted`", range=(0.0, 1e6))
    delivery_us: float = parameter(1.0, "microseconds of delivery and entry", range=(0.0, 1e6))
    cold_us: float = parameter(0.6, "microseconds lost to cold caches", range=(0.0, 1e6))
    exit_us: float = parameter(0.2, "microseconds of the return, and of arming again after a wait", range=(0.0, 1e6))
    handler_us: float = parameter(HANDLER_US, "microseconds for each event", range=(0.0, 1e6))
    batch: int = parameter(BATCH, "events that one run of the handler takes at most; 1 is without coalescing", range=(1, 1_000_000))
    disarm: bool = parameter(True, "whether notifications are off while the rank waits")

    def policy(self, cores: int = 4) -> Policy:
        """The handler's costs fall on the rank's core."""
        from armillary.comm.virtual.progress import Policy

        return Policy(
            "interrupt",
            detect=self._detect_us * US,
            entry=self._entry_us * US,
            handler=self.handler_us * US,
            exit=self.exit_us * US,
            rearm=self.exit_us * US if self.disarm else 0.0,
            batch=self.batch,
            lock=True,
            armed_in_wait=not self.disarm,
        )

    @property
    def _detect_us(self) -> float:
        return self.message_us + (self.remap_us if self.variant == IOMMU_POSTED else self.post_us)

    @property
    def _entry_us(self) -> float:
        return self.delivery_us + self.cold_us + (self.forward_us if self.variant == KERNEL_FORWARD else 0.0)

    @property
    def run_us(self) -> float:
        """The microseconds that one run of the handler with one event takes from the rank's core."""
        return self._entry_us + self.handler_us + self.exit_us

    def on_top_us(self, cores: int = 4) -> float:
        """All pieces of the path."""
        return self._detect_us + self._entry_us + self.exit_us
