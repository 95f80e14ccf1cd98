"""What a technique may learn from: the fleet as it was known on one day, with its training and validation samples."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from armillary.arena import Technique
from armillary.errors import InputError
from armillary.streams import stream

from ..blocks import in_blocks
from ..features.daily import Daily, daily
from ..features.windows import ends, flat
from ..fleets.fleet import Array, Fleet
from .alarms import Scored
from .split import Split, labels, within

#: Failures without which nothing can be learned.
FEWEST_FAILURES = 10


class Scorer(Protocol):
    """What a technique has learned."""

    def scores(self, fleet: Fleet, days: Daily, rows: Array) -> Array:
        """A score per drive-day, the higher the likelier it fails; `rows` are rows of `days`."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """A fleet as it was known on a day: nothing in it comes from that day or later.

    `most_epochs` and `most_ensemble` bound what networks may train, so that a comparison ends in time; 0 leaves it to the technique.
    """

    fleet: Fleet
    horizon: int
    seed: int = 0
    gap: int | None = None
    most_epochs: int = 0
    most_ensemble: int = 0
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def days(self) -> Daily:
        """The features of all its days."""
        return daily(self.fleet)

    @functools.cached_property
    def split(self) -> Split:
        """Its training and validation days."""
        return within(self.fleet.known_until, self.horizon, self.gap)

    def of(self, rows: Array) -> Array:
        """The labels of rows."""
        return labels(self.fleet, self.days.drive[rows], self.days.day[rows], self.horizon)

    def train(self, every: int = 20) -> Array:
        """Training rows: every positive one, and one random day per drive and `every` days of the others."""
        rows = self._before_failure(ends(self.days, *self.split.train))
        positive = self.of(rows)
        failing = len(np.unique(self.days.drive[rows[positive]]))
        if failing < FEWEST_FAILURES:
            said = f"found {failing} failures in the training days; expected at least {FEWEST_FAILURES}"
            raise InputError(f"{said} (pool models or fleets, or take a longer log)")
        others = rows[~positive]
        block = self.days.drive[others].astype(np.int64) * 100_000 + self.days.day[others] // every
        order = stream(self.seed, "negatives").permutation(len(others))
        _, first = np.unique(block[order], return_index=True)
        return np.sort(np.concatenate([rows[positive], others[order[first]]]))

    @functools.cached_property
    def validation(self) -> Array:
        """All validation rows."""
        return self._before_failure(ends(self.days, *self.split.validate))

    def _before_failure(self, rows: Array) -> Array:
        """Without the days of drives that had failed by then: they are neither healthy nor about to fail."""
        return rows[self.days.day[rows] < self.fleet.failure[self.days.drive[rows]]]

    def flat(self, rows: Array) -> Array:
        """One row of features per drive-day for trees, with the number of the drive's model at the end."""
        return with_model(self.fleet, self.days, rows)

    def table(self, every: int) -> tuple[Array, Array, Array]:
        """(rows, features, labels) of training rows, computed once for all learners that ask for the same."""
        key = f"table {every}"
        if key not in self._kept:
            rows = self.train(every)
            self._kept[key] = rows, self.flat(rows), self.of(rows)
        found: tuple[Array, Array, Array] = self._kept[key]
        return found

    def validated(self, scorer: Scorer) -> Scored:
        """The scores of the validation rows; of a scorer that had to compute them anyway, those."""
        score = getattr(scorer, "validated", None)
        return self.scored(self.validation, scorer.scores(self.fleet, self.days, self.validation) if score is None else score)

    def scored(self, rows: Array, score: Array) -> Scored:
        """Scores of some of its rows."""
        return Scored(self.days.drive[rows], self.days.day[rows], score)


def with_model(fleet: Fleet, days: Daily, rows: Array) -> Array:
    """The features of `flat` and the number of the drive's model."""
    model = fleet.model[days.drive[rows]].astype(np.float32)
    return np.concatenate([flat(days, rows, len(fleet.attributes)), model[:, None]], 1)


class DriveTechnique(Technique):
    """A technique of this arena."""

    def learn(self, lesson: Lesson) -> Scorer:
        """What can be learned from a fleet as it was known on a day."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Rows:
    """A scorer that is a function of one row of features per drive-day."""

    predict: Any
    facts: Mapping[str, Any] = field(default_factory=dict)

    def scores(self, fleet: Fleet, days: Daily, rows: Array) -> Array:
        """Scores of drive-days, in blocks of bounded size."""
        return in_blocks(lambda part: self.predict(with_model(fleet, days, part)), rows, 8192)
