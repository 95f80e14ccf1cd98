"""How long units will take: from earlier runs in the store, from the arena's record, and from those that have just ended.

A unit's time is the whole time that it keeps its worker: the making of its case, warm-up, repeated attempts on a disturbed machine and
all. Earlier runs tell only the run itself, so they are scaled by what this study has shown so far.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping

Place = tuple[str, str]


class Expectation:
    """Seconds by technique and case. `known` are seconds of earlier runs."""

    def __init__(self, known: Mapping[Place, float] | None = None) -> None:
        self._known = dict(known or {})
        self._seen: dict[Place, list[float]] = defaultdict(list)

    def saw(self, technique: str, case: str, seconds: float) -> None:
        """A unit ended after so many seconds, everything included."""
        self._seen[technique, case].append(seconds)

    def total(self, places: Iterable[Place]) -> float | None:
        """Seconds that units of these techniques and cases will take together; None when nothing is known about most of them."""
        wanted = list(places)
        by_technique, by_case = self._means(0), self._means(1)
        seen = [s for times in self._seen.values() for s in times]
        overall = statistics.fmean(seen) if seen else statistics.fmean(self._known.values()) if self._known else None
        scale = self._scale()
        if overall is None or (not seen and sum(p in self._known for p in wanted) < 0.7 * len(wanted)):
            return None
        return sum(self._one(place, scale, by_technique, by_case, overall) for place in wanted)

    def _one(self, place: Place, scale: float, by_technique: Mapping[str, float], by_case: Mapping[str, float], overall: float) -> float:
        times = self._seen.get(place)
        if times:
            # The first run of a technique on a case makes and compiles what the later ones find ready.
            return statistics.median(times[1:] if len(times) > 1 else times)
        if place in self._known:
            return scale * self._known[place]
        technique, case = by_technique.get(place[0], overall), by_case.get(place[1], overall)
        return technique * case / overall if overall > 0 else 0.0

    def _means(self, side: int) -> dict[str, float]:
        found: dict[str, list[float]] = defaultdict(list)
        for place, times in self._seen.items():
            found[place[side]] += times
        return {name: statistics.fmean(times) for name, times in found.items()}

    def _scale(self) -> float:
        """How much longer units take here and now than the earlier runs said."""
        both = [(sum(times), len(times) * self._known[place]) for place, times in self._seen.items() if self._known.get(place)]
        took, said = sum(t for t, _ in both), sum(s for _, s in both)
        return took / said if said > 0 else 1.0
