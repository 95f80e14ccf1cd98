"""The work of this arena: a fleet, a horizon, and how much training is allowed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError

from .features.daily import Daily, daily
from .features.windows import ends
from .fleets.fleet import NEVER, Array, Fleet
from .fleets.synthesis import SUDDEN
from .judging.alarms import Counts, Drives, Scored, average_precision, count, per_drive
from .judging.lesson import Lesson, Scorer
from .judging.split import Split, split


@dataclass(frozen=True, eq=False)
class DrivesWork:
    """A fleet to learn from and to be judged on."""

    fleet: Fleet
    horizon: int = 30
    most_epochs: int = 0
    most_ensemble: int = 0

    @functools.cached_property
    def split(self) -> Split:
        """The training, validation and test days."""
        return split(self.fleet.days, self.fleet.known_until, self.horizon)

    @functools.cached_property
    def days(self) -> Daily:
        """The features of all days."""
        return daily(self.fleet)

    @functools.cached_property
    def rows(self) -> Array:
        """All test rows."""
        return ends(self.days, *self.split.test)

    def lesson(self, seed: int = 0) -> Lesson:
        """What may be learned from: nothing from the first test day on."""
        past = self.fleet.until(self.split.test[0])
        return Lesson(past, self.horizon, seed, most_epochs=self.most_epochs, most_ensemble=self.most_ensemble)

    def scored(self, scorer: Scorer) -> Scored:
        """The scores of all test rows."""
        return Scored(self.days.drive[self.rows], self.days.day[self.rows], scorer.scores(self.fleet, self.days, self.rows))

    def per_drive(self, scored: Scored) -> Drives:
        """What the scores say of each drive."""
        return per_drive(self.fleet, scored, self.horizon)

    def counts(self, scored: Scored, threshold: float) -> Counts:
        """Drives found, missed and flagged in vain."""
        return count(self.fleet, scored, threshold, self.horizon)

    def auprc(self, scored: Scored) -> float:
        """The area under precision over recall, per drive."""
        drives = self.per_drive(scored)
        return average_precision(drives, self.fleet.failure[drives.drive] >= NEVER, self.fleet.weight)

    def possible(self) -> Array:
        """Of the drives that fail within the horizon of a test day, which show anything before on a test day; drawn fleets only."""
        if self.fleet.mode is None or self.fleet.onset is None:
            raise InputError("found a fleet from a file; expected a drawn one, whose modes of failure are known")
        drives = self.per_drive(Scored(self.days.drive[self.rows], self.days.day[self.rows], np.zeros(len(self.rows))))
        failing = drives.drive[drives.fails]
        last = np.minimum(self.fleet.failure[failing], self.split.test[1]) - 1
        found: Any = (self.fleet.mode[failing] != SUDDEN) & (self.fleet.onset[failing] <= last)
        return np.asarray(found)
