"""PyTorch's distributed checkpoint copies all state into pinned buffers while training waits, and writes it in the background.

A save begins when the one before it is written. The interval is 1 where every iteration must be checkpointed, and otherwise that of Young
and Daly.

`torch.distributed.checkpoint.async_save` with pinned staging, PyTorch 2.4, 2024.
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
class DcpAsync(Technique):
    """Blocking copy into pinned memory, background write. PyTorch's distributed checkpoint, 2024."""

    interval: int = parameter(0, "iterations between two saves; 0 takes what the case asks for, or Young's", range=(0, 1_000_000))

    def train(self, work: CheckpointWork) -> Trained:
        """Simulates the run."""
        rate = work.machine.pcie
        return on_storage(work, rate=rate, overlapped=False, interval=self.interval or work.every or young(work, work.state / rate))
