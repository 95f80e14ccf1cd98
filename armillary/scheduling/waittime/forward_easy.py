"""Simulate the scheduler itself forward, with predicted run times: the strongest forecast that needs no learning.

Where the policy is known, its decisions can be played from the present queue on, without arrivals: EASY decides with requested times, and
jobs end when their predictions say. Predictions are those of `forward-sim`. It still knows no later arrivals.

Smith, Taylor and Foster, Using run-time predictions to estimate queue wait times and improve scheduler performance, JSSPP 1999.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.arena import NotForThisCase
from armillary.parameters import parameter

from .features.sweep import forward_starts
from .judging.forecaster import Forecaster, Predicted
from .scheduler import DEPTH
from .workload import WaitWork, present

#: Steps of playing forward that one log may need at the most, some minutes.
MOST_STEPS = 3e11


@dataclass(frozen=True)
class ForwardEasy(Forecaster):
    """The start under EASY, played forward with the run times that users' last two jobs suggest."""

    depth: int = parameter(500, DEPTH, range=(1, 100_000))

    def predictions(self, work: WaitWork, learned: Any = None) -> Predicted:
        """The simulated waits."""
        running, queued = present(work.jobs, self.depth)
        steps = float(((running + queued) ** 2)[work.tune :].sum())
        if steps > MOST_STEPS:
            raise NotForThisCase(f"playing the queue forward at every submission takes up to {steps:.1g} steps")
        return Predicted(work.tune, forward_starts(work.log, first=work.tune, depth=self.depth, policy="easy"))
