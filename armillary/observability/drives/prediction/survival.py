"""The probability that a drive lasts so many days, from its score, by isotonic regression on the validation days.

P(fails within h | score) is the non-decreasing function of the score nearest to what happened, with healthy drives counted as often as the
thinning left them out; a drive that fails within 7 days also fails within 14, so longer spans never have a smaller probability. Scores are
first put together until each group holds 20 failing drive-days, and each group is given half a healthy one more: otherwise the highest
scores of a few days would promise certainty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.learn.calibration import Isotonic

from ..fleets.fleet import NEVER, Array, Fleet
from ..judging.alarms import Scored

#: Days for which the probability is given.
SPANS = (7, 14, 30, 90)
#: Failing drives without which nothing is said about a span.
FEWEST = 10
#: Failing drive-days of a group.
GROUP = 20


@dataclass(frozen=True, eq=False)
class Survival:
    """Curves by the number of days."""

    curves: dict[int, Isotonic]

    @classmethod
    def fit(cls, fleet: Fleet, scored: Scored, horizon: int) -> Survival:
        """From scores of days whose next `horizon` days are known; longer spans use the days for which they are known as well."""
        failure = fleet.failure[scored.drive]
        weights = np.where(failure >= NEVER, fleet.weight, 1.0)
        found = {}
        for span in sorted({*SPANS, horizon}):
            known = scored.day + span < fleet.known_until if span > horizon else np.ones(len(scored.day), bool)
            label = (failure > scored.day) & (failure <= scored.day + span)
            if span == horizon or len(np.unique(scored.drive[known & label])) >= FEWEST:
                found[span] = _grouped(scored.score[known], label[known], weights[known], fleet.weight)
        return cls(found)

    @property
    def known(self) -> tuple[int, ...]:
        """The spans of which something can be said, in days."""
        return tuple(sorted(self.curves))

    def __call__(self, span: int, scores: Array) -> Array:
        """The probability of lasting `span` days; NaN for a score that is NaN."""
        fails = np.max([self.curves[one](np.nan_to_num(scores)) for one in self.known if one <= span], axis=0)
        return np.where(np.isnan(scores), np.nan, 1 - fails)


def _grouped(score: Array, label: Array, weights: Array, weight: float) -> Isotonic:
    """The curve over groups of neighbouring scores, each at its mean score."""
    if not len(score):
        return Isotonic(np.zeros(1), np.zeros(1))
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(label[order])
    group = np.concatenate([[0], hits[:-1]]) // GROUP
    count = np.bincount(group, weights[order])
    mean = np.bincount(group, weights[order] * score[order]) / count
    share = np.bincount(group, weights[order] * label[order]) / (count + 0.5 * weight)
    return Isotonic.fit(mean, share, count)
