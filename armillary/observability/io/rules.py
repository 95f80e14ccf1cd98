"""A flat pass of threshold rules over a job's totals, as rule-based tools do it.

All files and ranks are added up first, so that one pass over the sums suffices. That is quick and easy to explain; a fault of one file can
hide in the totals of the others, and a consequence looks like a cause. The variant `rules-weighted` leaves out what touches little of the
I/O time, as `ioagent` does.

The thresholds are those of Drishti, as published in 2022, where it has one.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .diagnosis.finding import Answer
from .diagnosis.flat import flat
from .diagnosis.labels import Thresholds
from .workload import Known


@dataclass(frozen=True)
class Rules(Technique):
    """Threshold rules on totals."""

    least_severity: float = parameter(0.0, "findings that touch a smaller share of the I/O time are not reported", range=(0.0, 1.0))

    def answer(self, known: Known, scale: float = 1.0) -> Answer:
        """What the totals of one log show."""
        first: dict[str, object] = {}
        found = [one for one in flat(known.log, Thresholds().scaled(scale)) if one.severity >= self.least_severity * scale]
        return Answer(tuple(one for one in found if first.setdefault(one.label, one) is one))
