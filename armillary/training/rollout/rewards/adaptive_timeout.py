"""A program under test may run a little longer than correct ones took, so that no step waits for hopeless ones.

The time-out is min(max(least, factor · T_anchor), most), where T_anchor is the longest run among *correct* responses to the same prompt so
far; it is `most` as long as none was correct. RollPacker (arXiv 2509.21009, 2025), section on the reward scheduler.
"""

from __future__ import annotations

from collections.abc import Hashable

from armillary.errors import InputError


class AdaptiveTimeout:
    """Learns the time-out of each test case, in seconds, from its runs."""

    def __init__(self, least_s: float = 2.0, factor: float = 1.5, most_s: float = 30.0) -> None:
        if not (0 < least_s <= most_s) or factor < 1:
            raise InputError(
                f"least_s, factor, most_s: found {least_s}, {factor}, {most_s}; expected 0 < least_s ≤ most_s and a factor of at least 1"
            )
        self.least_s, self.factor, self.most_s = least_s, factor, most_s
        #: The seconds of the longest correct run of each test case.
        self.anchor: dict[Hashable, float] = {}

    def timeout(self, case: Hashable) -> float:
        """Seconds that the next run of `case` gets."""
        anchor = self.anchor.get(case)
        return self.most_s if anchor is None else min(max(self.least_s, self.factor * anchor), self.most_s)

    def ran(self, case: Hashable, seconds: float, correct: bool) -> None:
        """Records a run of `case` that is over."""
        if correct:
            self.anchor[case] = max(seconds, self.anchor.get(case, 0.0))
