"""What the summary page of a log shows: mean request sizes and bandwidth, and nothing else.

Whoever looks at Darshan's job summary sees how many bytes moved, how large requests were on average and how fast that was. This technique
calls a direction small if its mean request is below 1 MiB, and puts the slower direction first.

The summary is that of darshan-job-summary, part of Darshan since 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .diagnosis.facts import DIRECTIONS, Facts
from .diagnosis.finding import Answer, Evidence, Finding
from .workload import Known


@dataclass(frozen=True)
class Totals(Technique):
    """Mean request sizes and bandwidth."""

    small_bytes: float = parameter(float(1 << 20), "a mean request below this is small, in bytes", range=(1.0, 1e12))

    def answer(self, known: Known, scale: float = 1.0) -> Answer:
        """What the means of one log show."""
        facts = Facts(known.log)
        found = []
        for way in DIRECTIONS:
            number, moved, spent = (float(part.sum()) for part in (facts.requests(way), facts.bytes(way), facts.time(way)))
            if number and moved / number < self.small_bytes * scale:
                evidence = (Evidence("totals", f"{way}s", number), Evidence("totals", f"{way}_bytes", moved))
                text = f"The mean {way} is {moved / number / 1024:,.1f} KiB, at {moved / max(spent, 1e-12) / 2**20:,.1f} MiB/s."
                found.append(Finding(f"small-{way}", facts.share(spent), 0.5, evidence, text))
        return Answer(tuple(sorted(found, key=lambda one: -one.severity)))
