"""CheckFreq copies the state beside the next forward and backward pass, and checkpoints as often as a budget of overhead allows.

The copy must end before the optimizer changes the state, so that only what is longer than the two passes holds up training. Writing goes on
in the background, and a checkpoint waits for the one before it. A short profile gives the first interval; whenever checkpoints cost more
than the budget (3.5 %), the interval grows. Where every iteration must be checkpointed, the interval is 1.

CheckFreq: Frequent, Fine-Grained DNN Checkpointing, FAST 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import Technique
from armillary.parameters import parameter

from .simulation.storage import on_storage, write_s
from .workload import WARM_UP

if TYPE_CHECKING:
    from .simulation.training import Trained
    from .workload import CheckpointWork


@dataclass(frozen=True)
class CheckFreq(Technique):
    """Overlapped copy, background write, interval by a budget. CheckFreq, 2021."""

    budget: float = parameter(0.035, "the share of the time that checkpoints may cost", range=(0.001, 1.0))

    def interval(self, work: CheckpointWork) -> int:
        """Iterations between two checkpoints: enough to write one, and to keep the copy's stall within the budget."""
        if work.every:
            return work.every
        plain, copy = float(work.plain_s[:WARM_UP].mean()), work.state / work.machine.pcie
        stall = max(0.0, copy - (plain - work.update_s))
        return max(1, math.ceil((copy + write_s(work)) / plain), math.ceil(stall / (self.budget * plain)))

    def train(self, work: CheckpointWork) -> Trained:
        """Simulates the run."""
        budget = 0.0 if work.every else self.budget
        return on_storage(work, rate=work.machine.pcie, overlapped=True, interval=self.interval(work), budget=budget)
