"""First come, first served: the job that arrived first starts first. A. K. Erlang, 1909."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique


@dataclass(frozen=True)
class Fcfs(Technique):
    """Takes jobs in the order of their arrival."""

    def choose(self, lengths_s: np.ndarray) -> int:
        """The place, among the jobs that wait, of the one that starts."""
        return 0
