"""The range of values: clean runs say how small and how large an element gets.

A flipped exponent is far outside; a wrong mantissa is not.

The plainest of the detectors in "Lightweight Silent Data Corruption Detection Based on Runtime Data Analysis for HPC Applications",
HPDC 2015; the margin is **our design**.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.parameters import parameter

from .detection.checks import HIGH, LOW
from .detection.technique import AlgorithmDetector

if TYPE_CHECKING:
    from .detection.folds import Fold
    from .detection.runs import Array
    from .workload import Work


@dataclass(frozen=True)
class Range(AlgorithmDetector):
    """Alarms where an element of the iterate is outside what clean runs had, by more than a margin."""

    margin: float = parameter(0.1, "share of the learned range by which it is widened on both sides", range=(0.0, 10.0))
    check_name: ClassVar[str] = "range"

    def scores(self, work: Work, fold: Fold) -> Array:
        """How far beyond the learned range a window's iterate reaches, over the margin."""
        runs, rows = work.runs, fold.judge.rows
        origin = runs.origin[runs.run_of[rows]]
        found = np.zeros(len(rows))
        for one in np.unique(origin).tolist():
            normal = fold.normal[runs.origin[fold.normal] == one]
            seen = runs.checks[np.isin(runs.run_of, normal)]
            low, high = float(seen[:, LOW].min()), float(seen[:, HIGH].max())
            room = max(high - low, 1e-300) * max(self.margin, 1e-12)
            mine = runs.checks[rows[origin == one]]
            found[origin == one] = np.maximum(low - mine[:, LOW], mine[:, HIGH] - high) / room
        return found
