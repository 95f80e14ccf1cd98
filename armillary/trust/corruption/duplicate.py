"""Twice: the whole computation is run again, and the results are compared bit by bit.

It finds every transient fault that changes the result, at twice the cost, and only once the run is over. A fault that would strike both
runs alike is not among those that are injected here.

As whole programs are run twice in "Detection and Correction of Silent Data Corruption for Large-Scale High-Performance Computing", SC 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .detection.technique import AlgorithmDetector

if TYPE_CHECKING:
    from .detection.folds import Fold
    from .detection.runs import Array
    from .workload import Work


@dataclass(frozen=True)
class Duplicate(AlgorithmDetector):
    """Alarms at the end of a run whose result differs from that of a second one."""

    check_name: ClassVar[str] = "duplicate"

    def scores(self, work: Work, fold: Fold) -> Array:
        """2 in the last window of a run that differs."""
        runs, rows = work.runs, fold.judge.rows
        run = runs.run_of[rows]
        last = rows == runs.first[run + 1] - 1
        return np.where(last & runs.differs[run], 2.0, 0.0)
