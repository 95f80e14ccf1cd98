"""Shortest job first: nobody waits for a long job who could have been served before it. W. E. Smith, 1956."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Technique


@dataclass(frozen=True)
class ShortestFirst(Technique):
    """Takes the shortest job that waits."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("mean_wait", over="fcfs", by=Gain(ratio=(1.0, None)), says="no order without preemption waits less on average"),
    )

    def choose(self, lengths_s: np.ndarray) -> int:
        """The place, among the jobs that wait, of the shortest one."""
        return int(np.argmin(lengths_s))
