"""How scores become alarms, and how alarms are counted: per drive, at the rate of failures of the real fleet.

A drive is flagged on a day when at least `k` of its last three scores reach the threshold. It is found if a flag stands within the horizon
before its failure. Any other drive with a flag is a false alarm. Healthy drives of a thinned fleet count as many times as its weight says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..fleets.fleet import NEVER, Array, Fleet

#: Scores that are looked at together, and how many of them must reach the threshold.
RECENT, NEEDED = 3, 2
#: The false-alarm rate that the threshold may cause on the validation days, and the one above which `f05_at_far` is 0.
ALLOWED, TOLERATED = 0.001, 0.002


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of drive-days, sorted by drive and day."""

    drive: Array
    day: Array
    score: Array

    def alarms(self, needed: int = NEEDED) -> Array:
        """The greatest threshold at which each day would be flagged: the k-th largest of the last scores; -inf with fewer than k."""
        found = np.full((RECENT, len(self.score)), -np.inf)
        found[0] = self.score
        for back in range(1, RECENT):
            same = np.zeros(len(self.score), bool)
            same[back:] = (self.drive[back:] == self.drive[:-back]) & (self.day[back:] - self.day[:-back] < RECENT)
            found[back, same] = self.score[np.flatnonzero(same) - back]
        return np.sort(found, 0)[RECENT - needed]


@dataclass(frozen=True, eq=False)
class Drives:
    """The greatest threshold at which each looked-at drive is flagged rightly, and at all."""

    drive: Array
    #: Whether it fails within the horizon after one of its days.
    fails: Array
    right: Array
    any: Array


@dataclass(frozen=True)
class Counts:
    """Drives found, missed and flagged in vain; `false_healthy` of the latter never failed."""

    found: int
    missed: int
    false_failing: int
    false_healthy: int
    healthy: int
    lead_days: float
    weight: float

    @property
    def precision(self) -> float:
        """The share of flagged drives that fail in time, at the natural rate; 0 if none is flagged."""
        flagged = self.found + self.false_failing + self.weight * self.false_healthy
        return self.found / flagged if flagged else 0.0

    @property
    def recall(self) -> float:
        """The share of failing drives that are found."""
        failing = self.found + self.missed
        return self.found / failing if failing else 0.0

    @property
    def false_alarm_rate(self) -> float:
        """The share of healthy drives that are flagged."""
        return self.false_healthy / self.healthy if self.healthy else 0.0

    @property
    def f05(self) -> float:
        """F-beta with β = ½."""
        return f05(self.precision, self.recall)

    @property
    def f05_at_far(self) -> float:
        """F½, and 0 where more healthy drives are flagged than an operator can bear."""
        return self.f05 if self.false_alarm_rate <= TOLERATED else 0.0


def f05(precision: float, recall: float) -> float:
    """1.25 P R / (0.25 P + R)."""
    return 1.25 * precision * recall / (0.25 * precision + recall) if precision + recall else 0.0


def per_drive(fleet: Fleet, scored: Scored, horizon: int, needed: int = NEEDED) -> Drives:
    """What the scores say of each drive."""
    alarm = scored.alarms(needed)
    drives, place = np.unique(scored.drive, return_inverse=True)
    failure = fleet.failure[drives]
    ahead = failure[place] - scored.day
    good = (ahead > 0) & (ahead <= horizon)
    right, anything = np.full(len(drives), -np.inf), np.full(len(drives), -np.inf)
    np.maximum.at(right, place[good], alarm[good])
    np.maximum.at(anything, place, alarm)
    fails = np.zeros(len(drives), bool)
    np.logical_or.at(fails, place, good)
    return Drives(drives, fails, right, anything)


def count(fleet: Fleet, scored: Scored, threshold: float, horizon: int, needed: int = NEEDED) -> Counts:
    """The drives that a threshold finds, misses and flags in vain."""
    drives = per_drive(fleet, scored, horizon, needed)
    found = drives.right >= threshold
    vain = (drives.any >= threshold) & ~found
    healthy = fleet.failure[drives.drive] >= NEVER
    return Counts(
        int(found.sum()), int((drives.fails & ~found).sum()), int((vain & ~healthy).sum()), int((vain & healthy).sum()),
        int(healthy.sum()), lead(fleet, scored, threshold, horizon, needed), fleet.weight,
    )  # fmt: skip


def lead(fleet: Fleet, scored: Scored, threshold: float, horizon: int, needed: int = NEEDED) -> float:
    """Median days from the first right flag to the failure, over the drives found; 0 if there is none."""
    ahead = fleet.failure[scored.drive] - scored.day
    flagged = (scored.alarms(needed) >= threshold) & (ahead > 0) & (ahead <= horizon)
    if not flagged.any():
        return 0.0
    longest = np.zeros(len(fleet), np.int64)
    np.maximum.at(longest, scored.drive[flagged], ahead[flagged])
    return float(np.median(longest[longest > 0]))


def average_precision(drives: Drives, healthy: Array, weight: float) -> float:
    """The area under precision over recall at the natural rate, by steps, each drive ranked by its best right alarm or, if healthy, by any.

    A failing drive that is not found counts as missed at that threshold, and a healthy one counts `weight` times.
    """
    counted = drives.fails | healthy
    score = np.where(drives.fails, drives.right, drives.any)[counted]
    positive = drives.fails[counted]
    if not positive.any():
        return 0.0
    weights = np.where(positive, 1.0, weight)
    order = np.argsort(-score, kind="stable")
    score, gain, loss = score[order], (positive * weights)[order].cumsum(), (~positive * weights)[order].cumsum()
    last = np.append(score[1:] != score[:-1], True) & (score > -np.inf)
    recall, precision = gain[last] / positive.sum(), gain[last] / (gain + loss)[last]
    return float((np.diff(recall, prepend=0.0) * precision).sum())


def best_threshold(
    fleet: Fleet, scored: Scored, horizon: int, allowed: float = ALLOWED, needed: int = NEEDED
) -> tuple[float, float, float]:
    """(threshold, F½, recall) with the greatest F½ on these days among the thresholds that flag at most `allowed` of the healthy drives.

    The threshold stands half-way to the next lower score. Without any drive to find it is infinite: nothing is flagged.
    """
    drives = per_drive(fleet, scored, horizon, needed)
    healthy = fleet.failure[drives.drive] >= NEVER
    right, anything, vain = drives.right[drives.fails], drives.any[~healthy], drives.any[healthy]
    return best_cut(right, anything, vain, fleet.weight, allowed)


def best_cut(right: Array, failing: Array, healthy: Array, weight: float, allowed: float) -> tuple[float, float, float]:
    """`best_threshold` of scores of drives: the best right ones, and the best ones at all of failing and of healthy drives."""
    levels = np.unique(right)
    levels = levels[levels > -np.inf][::-1]
    if not len(levels):
        return np.inf, 0.0, 0.0
    every = np.unique(np.concatenate([failing, healthy, right]))
    ranked, others, vain = np.sort(right), np.sort(failing), np.sort(healthy)
    found = len(ranked) - np.searchsorted(ranked, levels)
    false = len(vain) - np.searchsorted(vain, levels)
    total = np.maximum(len(others) - np.searchsorted(others, levels), found) + weight * false
    precision, recall = found / np.maximum(total, 1), found / len(ranked)
    value = 1.25 * precision * recall / np.maximum(0.25 * precision + recall, 1e-300)
    value[false > allowed * max(1, len(vain))] = -1.0
    best = int(np.argmax(value))
    if value[best] < 0:  # Even the highest score of a failing drive has too many healthy ones above it.
        return float(np.nextafter(every[-1], np.inf)), 0.0, 0.0
    below = every[every < levels[best]]
    under = float(below[-1]) if len(below) and np.isfinite(below[-1]) else float(levels[best]) - 1.0
    return 0.5 * (float(levels[best]) + under), float(value[best]), float(recall[best])
