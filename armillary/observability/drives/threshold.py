"""Thresholds on five attributes: reallocated, uncorrectable, timed out, pending and offline uncorrectable sectors, if they rise.

Operators have used this rule for years: a drive whose raw value of attribute 5, 187, 188, 197 or 198 is above 0 fails far more often than
others. Among drives above 0, the ones whose values rise most within a week come first, and the alarm threshold is set like everybody's.

What SMART Stats Tell Us About Hard Drives, Backblaze 2016; the order among the drives above 0 is **our design**.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .features.daily import PER_ATTRIBUTE, Daily
from .fleets.fleet import Array, Fleet
from .judging.lesson import DriveTechnique, Lesson, Scorer

#: Attributes that count errors of the medium.
RULE = (5, 187, 188, 197, 198)


@dataclass(frozen=True)
class Threshold(DriveTechnique):
    """Flags drives whose error counters are above 0 and rise."""

    def learn(self, lesson: Lesson) -> Scorer:
        """Nothing: the rule is fixed."""
        del lesson
        return Rising()


class Rising:
    """The rule."""

    def scores(self, fleet: Fleet, days: Daily, rows: Array) -> Array:
        """The sum of what the five counters rose by within a week; -1 where none of them is above 0."""
        found = np.full(len(rows), -1.0)
        total: Any = np.zeros(len(rows))
        for i, attribute in enumerate(fleet.attributes.tolist()):
            if attribute in RULE:
                value, week = (days.values[rows, PER_ATTRIBUTE * i + part].astype(np.float64) for part in (0, 2))
                total = total + np.where(value > 0, np.expm1(np.maximum(week, 0)), 0)
                found = np.maximum(found, np.where(value > 0, 0.0, -1.0))
        return np.where(found >= 0, total, -1.0)
