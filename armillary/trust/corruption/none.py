"""No detection: what is missed by looking at nothing.

So most programs run, and "Silent Data Corruptions at Scale", 2021, tells what came of that in a large fleet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .detection.technique import AlgorithmDetector

if TYPE_CHECKING:
    from .detection.folds import Fold
    from .detection.runs import Array
    from .workload import Work


@dataclass(frozen=True)
class NoDetection(AlgorithmDetector):
    """Never alarms."""

    def scores(self, work: Work, fold: Fold) -> Array:
        """Zeros."""
        return np.zeros(len(fold.judge.rows))
