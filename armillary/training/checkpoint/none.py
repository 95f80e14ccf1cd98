"""No checkpoints: the speed that all others are measured against, and everything lost at the first failure.

What a failure costs without checkpoints is why there are any; Young, A first order approximation to the optimum checkpoint interval, 1974.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.arena import Technique

from .simulation.training import Trained, unplanned_error
from .workload import WARM_UP

if TYPE_CHECKING:
    from .workload import CheckpointWork


@dataclass(frozen=True)
class NoCheckpoint(Technique):
    """Trains without checkpoints (a reference; Young, 1974, says what checkpoints are for)."""

    def train(self, work: CheckpointWork) -> Trained:
        """The iterations as they are."""
        plain, count = work.plain_s, work.iterations
        promise = float(plain[:WARM_UP].mean())
        return Trained(plain, np.zeros(count), promise, unplanned_error(work), float(count), count, profiled=np.zeros(count))
