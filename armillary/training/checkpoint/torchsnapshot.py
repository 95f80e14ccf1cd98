"""TorchSnapshot copies all state to the host while training waits, and writes it to storage in the background.

The copy goes into ordinary memory, which is slower than into pinned buffers. A snapshot begins when the one before it is written. The
interval is 1 where every iteration must be checkpointed, and otherwise that of Young and Daly for the mean time between failures.

TorchSnapshot 0.1.0, `Snapshot.async_take`, 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import Technique
from armillary.parameters import parameter

from .simulation.storage import on_storage, young

if TYPE_CHECKING:
    from .simulation.training import Trained
    from .workload import CheckpointWork


@dataclass(frozen=True)
class TorchSnapshot(Technique):
    """Blocking copy, background write. TorchSnapshot, 2022."""

    interval: int = parameter(0, "iterations between two snapshots; 0 takes what the case asks for, or Young's", range=(0, 1_000_000))

    def train(self, work: CheckpointWork) -> Trained:
        """Simulates the run."""
        rate = work.machine.pageable * work.machine.pcie
        return on_storage(work, rate=rate, overlapped=False, interval=self.interval or work.every or young(work, work.state / rate))
