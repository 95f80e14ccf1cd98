"""Plan the queue with predicted run times instead of requested ones: a user's next job runs as long as the last two did.

Each job is predicted to run for the mean of its user's last two run times, at most for its request. A running job that outlives its
prediction is given more time, step by step. Everything else is as in `scheduler`.

Tsafrir, Etsion and Feitelson, Backfilling using system-generated predictions rather than user runtime estimates, TPDS 2007; waits from
such plans: Smith, Taylor and Foster, Using run-time predictions to estimate queue wait times, JSSPP 1999.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.parameters import parameter

from .features.sweep import forward_starts
from .judging.forecaster import Forecaster, Predicted
from .scheduler import DEPTH
from .workload import WaitWork


@dataclass(frozen=True)
class ForwardSim(Forecaster):
    """The planned start under the run times that users' last two jobs suggest."""

    depth: int = parameter(500, DEPTH, range=(1, 100_000))

    def predictions(self, work: WaitWork, learned: Any = None) -> Predicted:
        """The planned waits."""
        return Predicted(work.tune, forward_starts(work.log, first=work.tune, depth=self.depth))
