"""What all techniques share: a wait for each job of a log, from what was known when it was submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique
from armillary.scheduling.waittime.workload import WaitWork

from .intervals import calibrated, interval

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Predicted:
    """Waits in seconds for the jobs from number `first` on, and 90 % intervals where the technique has its own."""

    first: int
    point_s: Floats
    low_s: Floats | None = None
    high_s: Floats | None = None


class Forecaster(Technique):
    """A technique that predicts waits."""

    def learn(self, work: WaitWork) -> Any:
        """What is learned before the first answer; most techniques learn nothing beforehand."""
        return None

    def predictions(self, work: WaitWork, learned: Any = None) -> Predicted:
        """The waits of all jobs from `work.tune` on, each from what was known at its submission."""
        raise NotImplementedError


def with_intervals(work: WaitWork, found: Predicted) -> tuple[Floats, Floats, Floats]:
    """(point, lower, upper) for the jobs that are judged; one split-conformal step serves every technique without own intervals."""
    judged = work.test - found.first
    point = found.point_s[judged:]
    if found.low_s is not None and found.high_s is not None:
        return point, found.low_s[judged:], found.high_s[judged:]
    rows = work.told(work.tune, work.test, work.test)
    if not len(rows):
        return point, np.zeros(len(point)), np.full(len(point), np.inf)
    around = calibrated(found.point_s[rows - found.first], work.jobs.wait_s[rows], work.jobs.nodes[rows])
    return point, *interval(around, point, work.jobs.nodes[work.test :])
